"""The results of an ablation as plain data: its numbers, from evaluations, and what a report of them holds."""
