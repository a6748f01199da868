"""The command line: what it understands, and what it prints."""
