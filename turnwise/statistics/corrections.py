"""Correction for multiple comparisons, since of many pairs that are all alike some look different by chance.

Holm's method (1979) bounds the probability of any false "different" in a family of comparisons by the significance
level, whatever their dependence: the i-th smallest of m p-values is multiplied by m - i + 1, and none may be below the
one before it.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The corrected p-values, in the given order. None, for a comparison that could not be made, stays None.

    Raises ValueError for a p-value outside 0 to 1.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(known):
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"a p-value must lie between 0 and 1; found {p}")
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        corrected[place] = highest
    return corrected
