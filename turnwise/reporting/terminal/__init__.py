"""Terminal output: tables, verdicts and episodes."""
