"""Configuration: the schema of params.yaml, strict YAML, overlays of files and settings, and error messages."""
