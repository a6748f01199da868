"""The data that stages exchange: trajectories and their files, conversations, task sets, and metrics of episodes."""
