"""A critic: its targets, its loss, and the model that values states."""
