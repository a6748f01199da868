"""Stages of this repository's own studies."""
