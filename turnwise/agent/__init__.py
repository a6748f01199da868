"""The agent layer between a world's text and a policy's tokens: formats, fault-tolerant hosts, episodes, rollouts."""
