"""The outcome of a run that did not make all its iterations: a guard or an alarm ended it, or a fault left it out.

*An early end is an outcome.* A method whose runs collapse has collapsed; comparing only the runs that went on would
select on the outcome. So the policy that such a run ended with is tested like any other and counts in every table,
interval and verdict, as a trial counts who was assigned to a treatment and not who stayed on it (intention to treat).

*A fault is none.* Where engine and learner disagree (`mismatch`), or a number is not finite (`not_finite`), the numbers
of the run cannot be trusted. It is missing data: left out of every comparison, which says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnwise.config.schema import Section


def run_name(variant: str, seed: int) -> str:
    """The name of a run wherever it is shown."""
    return f"{variant} seed {seed}"


class NamedRun:
    """A run, or what is known of it, with the name of the run."""

    variant: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the run wherever it is shown."""
        return run_name(self.variant, self.seed)


class EarlyEnd(Section):
    """When, by what and why a run was ended before its last iteration."""

    iteration: int
    """The last iteration that the run made, from 1; the policy after it was tested."""
    planned: int
    """The iterations that it would have made."""
    cause: Literal["guard", "alarm"]
    by: tuple[str, ...]
    """The name of the guard, or the monitors whose alarms were raised."""
    message: str
    """What was seen, what it usually means, what may help, and the last good policy."""

    @property
    def reason(self) -> str:
        """What ended it, to follow `ended by`: `zero_variance_groups`, or `the alarm on entropy`."""
        names = " and ".join(self.by)
        return names if self.cause == "guard" else f"the alarm on {names}"

    @property
    def when(self) -> str:
        """When it was ended, e.g. `iteration 31 of 100`."""
        return f"iteration {self.iteration} of {self.planned}"


@dataclass(frozen=True)
class LeftOut(NamedRun):
    """A run that a fault has left out of every comparison."""

    variant: str
    seed: int
    by: str
    """The guard that found the fault: `mismatch` or `not_finite`."""
    message: str
    """What was seen, what it usually means, what may help, and the last good policy."""
