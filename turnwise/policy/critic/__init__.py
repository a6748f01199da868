"""The critic: its targets, its loss, and the value model."""
