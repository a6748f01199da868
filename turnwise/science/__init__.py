"""Claims of papers put to the test: stated before the runs, decided by a rule, written down as they come out.

`claims.py` reads what is claimed, `verdict.py` decides it from the runs of ablations, by one rule for all. A page of
`docs/science/` is a function of the claims and of the recorded runs alone, so that no verdict can be typed in by hand.
"""
