"""What the terminal shows: tables, verdicts and episodes."""
