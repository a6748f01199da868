"""The policy: what samples from it (the engine), what trains it (the learner), and its tokens."""
