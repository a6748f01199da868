"""The runs of an ablation: what they need, their state, their stages, and what is recorded and reported of them."""
