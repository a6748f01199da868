"""Calibration of alarms: which bounds tell a collapse before it comes, found on some runs and tried on others.

A run **collapses** when its success, as the mean of the last `SMOOTHING` iterations, falls below `SHARE` of the best
such mean before, and never comes back to it; the first such iteration is the onset. That is a statement about the
outcome alone: whether a setting was meant to collapse does not count, and no monitor but success is looked at.

A rule **detects** a collapse when it raises its alarm at the onset or before it; the lead is how many iterations
before. An alarm in a run that does not collapse is a false alarm. For every monitor the rule is chosen among the
midpoints between the values that were seen and a few patiences: no more false alarms than `ALLOWED`, then the most
detections, then the longest lead, then the longest patience. The runs of the other seeds tell what it is worth.

No paper that stops on monitors (RAGEN-2, arXiv 2604.06268, among them) says how its bounds were found.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config.monitoring import AlarmRule
from turnwise.health.alarms import AlarmState
from turnwise.health.monitors import Values

SMOOTHING = 5
"""Iterations of the trailing mean of success; at the start of a run, those that there are."""
SHARE = 0.5
"""Of the best mean so far, below which success has collapsed."""
ALLOWED = 0
"""False alarms that a rule may raise in the runs that it is chosen on."""
PATIENCES = (1, 2, 3, 5)
BOUNDS = 40
"""Bounds that are tried of each monitor, spread evenly over the values that were seen."""

SIDES: Mapping[str, tuple[str, ...]] = {
    "reward_deviation_of_start": ("below",),
    "dead_groups": ("above",),
    "entropy_of_start": ("below", "above"),
    "gradient_norm_of_median": ("above",),
    "reply_tokens_of_start": ("below", "above"),
    "truncated_replies": ("above",),
    "invalid_replies": ("above",),
    "repeated_phrases": ("above",),
    "shared_phrases": ("above",),
    "distinct_replies": ("below",),
    "kl_warm_start": ("above",),
    "mutual_information": ("below",),
    "retrieval_accuracy": ("below",),
}
"""By monitor, on which side of its bound a collapse is looked for. Those that depend on the scale of rewards or of the
vocabulary are compared with the run's own start."""


@dataclass(frozen=True)
class WatchedRun:
    """One run, as its monitors tell it."""

    world: str
    variant: str
    seed: int
    history: Sequence[Values]
    """The monitors of every iteration, in order."""

    @property
    def onset(self) -> int | None:
        """The iteration, from 1, from which on the run has collapsed; None where it has not."""
        return onset([values["success"] for values in self.history])


@dataclass(frozen=True)
class AlarmScore:
    """What a rule is worth on some runs."""

    collapses: int
    in_time: int
    """Collapses that it detected."""
    late: int
    """Collapses after whose onset it raised its alarm."""
    healthy: int
    false_alarms: int
    leads: tuple[int, ...]
    """Iterations before the onset, of the collapses that were detected."""

    @property
    def lead(self) -> float | None:
        """The median lead; None where nothing was detected."""
        return statistics.median(self.leads) if self.leads else None


@dataclass(frozen=True)
class Calibrated:
    """The rule of one monitor, with its worth on the runs that it was chosen on and on the others."""

    monitor: str
    rule: AlarmRule
    chosen_on: AlarmScore
    tried_on: AlarmScore


def onset(success: Sequence[float]) -> int | None:
    """The iteration, from 1, at which success falls below a share of its best and never comes back; else None."""
    means = [statistics.fmean(success[max(0, end - SMOOTHING) : end]) for end in range(1, len(success) + 1)]
    best = np.maximum.accumulate(means)
    down = [mean < SHARE * most for mean, most in zip(means, best, strict=True)]
    first = len(down)
    while first and down[first - 1]:
        first -= 1
    return first + 1 if first < len(down) else None


def raised_at(history: Sequence[Values], monitor: str, rule: AlarmRule) -> int | None:
    """The iteration, from 1, at which a rule raises its first alarm; else None."""
    state, rules = AlarmState(), {monitor: rule}
    for iteration, values in enumerate(history, 1):
        state = state.after(iteration, values, rules)
        if state.on(rules):
            return iteration
    return None


def judge(runs: Sequence[WatchedRun], rules: Mapping[str, AlarmRule]) -> AlarmScore:
    """What rules are worth together: the first alarm of any of them counts."""
    leads, late, false_alarms, collapses = [], 0, 0, 0
    for run in runs:
        times = [raised_at(run.history, monitor, rule) for monitor, rule in rules.items()]
        raised = min((time for time in times if time is not None), default=None)
        begins = run.onset
        collapses += begins is not None
        if raised is None:
            continue
        if begins is None:
            false_alarms += 1
        elif raised <= begins:
            leads.append(begins - raised)
        else:
            late += 1
    return AlarmScore(collapses, len(leads), late, len(runs) - collapses, false_alarms, tuple(leads))


def calibrate(choosing: Sequence[WatchedRun], trying: Sequence[WatchedRun]) -> list[Calibrated]:
    """For every monitor and side the best rule on the runs of `choosing`, the best monitors first, tried on `trying`.

    A monitor of which no rule detects anything without too many false alarms is left out.
    """
    found = []
    for monitor, sides in SIDES.items():
        for side in sides:
            rules = [(rule, judge(choosing, {monitor: rule})) for rule in _candidates(choosing, monitor, side)]
            allowed = [pair for pair in rules if pair[1].false_alarms <= ALLOWED and pair[1].in_time]
            if allowed:
                rule, verdict = max(allowed, key=lambda pair: (*_worth(pair[1]), pair[0].patience))
                found.append(Calibrated(monitor, rule, verdict, judge(trying, {monitor: rule})))
    return sorted(found, key=lambda each: _worth(each.chosen_on), reverse=True)


def _worth(verdict: AlarmScore) -> tuple[float, float]:
    return verdict.in_time, verdict.lead or 0.0


def _candidates(runs: Sequence[WatchedRun], monitor: str, side: str) -> Iterator[AlarmRule]:
    """Rules whose bounds lie between values that were seen."""
    seen = np.unique([values[monitor] for run in runs for values in run.history if monitor in values])
    between = (seen[1:] + seen[:-1]) / 2
    if len(between) > BOUNDS:
        between = between[np.linspace(0, len(between) - 1, BOUNDS).round().astype(int)]
    for bound in between:
        for patience in PATIENCES:
            value = float(f"{bound:.3g}")
            yield AlarmRule(
                below=value if side == "below" else None, above=value if side == "above" else None, patience=patience
            )
