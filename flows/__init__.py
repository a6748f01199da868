"""Composition: which stages follow which. No tensor, no file format, no formula."""

import gc

# What the flows import makes a million objects that stay. To look for garbage after every 700 new ones, as Python does,
# takes a quarter of the time that the imports take.
gc.set_threshold(50_000, 20, 50)
