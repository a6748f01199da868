"""What other credit and losses would make of a rollout that exists: `turnwise what-if`."""
