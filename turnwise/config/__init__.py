"""The sections of params.yaml, how files are laid over one another, and what is said of a mistake."""
