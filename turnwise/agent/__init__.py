"""Between a world's text and a policy's tokens: formats, hosts that outlive faults, episodes, their loop."""
