"""The stages: each loads artifacts, calls the library, and saves artifacts."""
