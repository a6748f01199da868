"""Composition of stages into runs, ablations and studies. No tensors, file formats or formulas are handled here."""

import gc

# The imports of the flows create about a million objects that are never freed. With Python's default threshold of 700
# new objects, garbage collection takes a quarter of the import time.
gc.set_threshold(50_000, 20, 50)
