"""When a run is ended early: a guard's condition has held long enough, or an alarm stops the run.

Only conditions of training are decided here. The faults, `mismatch` and `not_finite`, are raised by the learner.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.config.monitoring import Guards
from turnwise.health.guards import COUNTED


def reached_guard(in_a_row: Mapping[str, int], guards: Guards) -> str | None:
    """The name of the guard that ends a run; of several the first in the guards' order, None where none does.

    `in_a_row` has, by guard, the number of consecutive iterations in which its condition has held: see
    `turnwise.health.guards.in_a_row`.
    """
    for name in COUNTED:
        most = getattr(guards, name)
        if most is not None and in_a_row[name] >= most:
            return name
    return None
