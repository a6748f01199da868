"""The stage that collects the report data."""
