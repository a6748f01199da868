"""Claims of papers: stated before anything is run, decided by one rule, and written as the pages of docs/science."""
