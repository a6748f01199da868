"""What runs flows: Prefect's server, worker processes that share the runs, and the display."""
