"""What flows write down of runs, and how recorded runs are found and compared."""
