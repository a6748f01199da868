"""Recording of runs, and reading and comparing of recorded runs."""
