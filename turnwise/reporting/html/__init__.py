"""HTML pages: the report of an ablation and the episodes of a run."""
