"""What runs flows: Prefect's server, other processes that share the work, and the display."""
