"""The stages of dvc.yaml, and what they depend on."""
