"""What flows between stages: trajectories and their files, conversations, task sets, and the metrics of episodes."""
