"""The runs of an ablation: which are next, their state, stages and memory, and the progress while they are made."""
