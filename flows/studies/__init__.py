"""Flows that write this repository's own pages."""
