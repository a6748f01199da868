"""Calibration of alarms: which bounds predict a collapse, chosen on some runs and evaluated on others.

A run **collapses** when its success, averaged over the last `SMOOTHING` iterations, falls below `SHARE` of the best
such average so far and never recovers; the first such iteration is the onset. The definition uses the outcome alone:
whether a setting was expected to collapse does not count, and no monitor other than success is used.

A rule **detects** a collapse when it raises its alarm at or before the onset; the lead is the number of iterations
before. An alarm in a run that does not collapse is a false alarm. A bound that warns earlier is also wrong more often,
so a monitor is judged by a curve: the longest mean lead over all collapses (0 for one that was not detected) that some
bound reaches with at most so many false alarms. Its mean height over rates of false alarms up to `MOST_FALSE` is the
monitor's **warning**, in iterations (the area under the curve of activity monitoring: Fawcett and Provost 1999).

For every monitor the patience is that with the longest warning, and the bound, midway between observed values and
rounded to three digits, that with the longest mean lead at no more than `ALLOWED` false alarms. Both are tried on other
seeds.

No paper that stops on monitors (RAGEN-2, arXiv 2604.06268, among them) says how its bounds were found.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.config.monitoring import AlarmRule
from turnwise.health.alarms import AlarmState
from turnwise.health.monitors import Values

SMOOTHING = 5
"""Iterations of the trailing mean of success; fewer at the start of a run."""
SHARE = 0.5
"""Fraction of the best mean so far, below which success has collapsed."""
ALLOWED = 0
"""Maximum number of false alarms of a rule on the runs that it is chosen on."""
MOST_FALSE = 0.25
"""Share of the runs without a collapse in which an alarm may be raised: beyond it nobody would listen."""
PATIENCES = (1, 2, 3, 5)
"""Patiences that are tried, in iterations."""
BOUNDS = 40
"""Maximum number of bounds that are tried per monitor and side, spread evenly over the observed values by rank."""

SIDES: Mapping[str, tuple[str, ...]] = {
    "reward_deviation_of_start": ("below",),
    "zero_variance_groups": ("above",),
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
"""The sides of a bound on which each monitor may signal a collapse. Monitors that depend on the scale of rewards or of
the vocabulary are relative to the run's own start."""


@dataclass(frozen=True)
class MonitoredRun:
    """One run with the history of its monitors."""

    world: str
    variant: str
    seed: int
    history: Sequence[Values]
    """The monitors of every iteration, in order."""

    @property
    def onset(self) -> int | None:
        """The iteration, from 1, at which the run collapsed for good; None if it did not."""
        return onset([values["success"] for values in self.history])


@dataclass(frozen=True)
class AlarmScore:
    """How well a rule detects collapses in a set of runs."""

    collapses: int
    """Runs that collapsed."""
    in_time: int
    """Collapses that it detected, at or before the onset."""
    late: int
    """Collapses for which it raised its alarm only after the onset."""
    healthy: int
    """Runs that did not collapse."""
    false_alarms: int
    """Healthy runs in which it raised an alarm."""
    leads: tuple[int, ...]
    """Iterations from alarm to onset, for each detected collapse."""

    @property
    def lead(self) -> float | None:
        """The median lead in iterations; None if nothing was detected."""
        return statistics.median(self.leads) if self.leads else None

    @property
    def mean_lead(self) -> float:
        """The mean lead in iterations over all collapses, 0 for each that was not detected in time."""
        return sum(self.leads) / self.collapses if self.collapses else 0.0


@dataclass(frozen=True)
class Calibrated:
    """The rule chosen for one monitor, with its scores on the runs that it was chosen on and on held-out runs."""

    monitor: str
    rule: AlarmRule
    warning: float
    """Of the monitor with this side and patience, on the runs that the rule was chosen on; in iterations."""
    warning_elsewhere: float
    """The same on the held-out runs, with bounds of their own: what the monitor can tell, not what this rule does."""
    chosen_on: AlarmScore
    tried_on: AlarmScore


def onset(success: Sequence[float]) -> int | None:
    """The iteration, from 1, at which mean success falls below `SHARE` of its best and never recovers; else None."""
    means = [statistics.fmean(success[max(0, end - SMOOTHING) : end]) for end in range(1, len(success) + 1)]
    best = np.maximum.accumulate(means)
    down = [mean < SHARE * most for mean, most in zip(means, best, strict=True)]
    first = len(down)
    while first and down[first - 1]:
        first -= 1
    return first + 1 if first < len(down) else None


def raised_at(history: Sequence[Values], monitor: str, rule: AlarmRule) -> int | None:
    """The iteration, from 1, at which a rule raises its first alarm; None if it never does."""
    state, rules = AlarmState(), {monitor: rule}
    for iteration, values in enumerate(history, 1):
        state = state.after(iteration, values, rules)
        if state.on(rules):
            return iteration
    return None


def judge(runs: Sequence[MonitoredRun], rules: Mapping[str, AlarmRule]) -> AlarmScore:
    """The score of several rules together: in each run the first alarm of any of them counts."""
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


def warning(scores: Sequence[AlarmScore]) -> float:
    """The mean lead in iterations that the best of these rules has, over rates of false alarms from 0 to `MOST_FALSE`.

    The rules are those of one monitor, side and patience, which differ in their bounds.
    """
    healthy = max((score.healthy for score in scores), default=0)
    rates = [score.false_alarms / healthy if healthy else 0.0 for score in scores]
    steps = [0.0, *sorted({rate for rate in rates if 0.0 < rate < MOST_FALSE}), MOST_FALSE]
    area = 0.0
    for begin, end in itertools.pairwise(steps):
        reached = [score.mean_lead for score, rate in zip(scores, rates, strict=True) if rate <= begin]
        area += max(reached, default=0.0) * (end - begin)
    return area / MOST_FALSE


def calibrate(choosing: Sequence[MonitoredRun], trying: Sequence[MonitoredRun]) -> list[Calibrated]:
    """The best rule of every monitor and side on the runs of `choosing`, scored on both sets, longest warnings first.

    A monitor and side is left out if no rule of it detects a collapse with at most `ALLOWED` false alarms.
    """
    calibrated = []
    for monitor, sides in SIDES.items():
        for side in sides:
            by_patience = [_score(choosing, monitor, side, patience) for patience in PATIENCES]
            scored_rules = max(by_patience, key=lambda each: warning([score for _, score in each]))
            allowed_rules = [each for each in scored_rules if each[1].in_time and each[1].false_alarms <= ALLOWED]
            if not allowed_rules:
                continue
            rule, score = max(allowed_rules, key=lambda each: (each[1].mean_lead, each[1].in_time))
            elsewhere = [score for _, score in _score(trying, monitor, side, rule.patience)]
            calibrated.append(
                Calibrated(
                    monitor,
                    rule,
                    warning([score for _, score in scored_rules]),
                    warning(elsewhere),
                    score,
                    judge(trying, {monitor: rule}),
                )
            )
    return sorted(calibrated, key=lambda each: each.warning, reverse=True)


def _score(runs: Sequence[MonitoredRun], monitor: str, side: str, patience: int) -> list[tuple[AlarmRule, AlarmScore]]:
    """The rules of a monitor, one for each bound midway between observed values, and their scores."""
    rules = _rules(runs, monitor, side, patience)
    return [(rule, judge(runs, {monitor: rule})) for rule in rules]


def _rules(runs: Sequence[MonitoredRun], monitor: str, side: str, patience: int) -> list[AlarmRule]:
    seen = np.unique([values[monitor] for run in runs for values in run.history if monitor in values])
    between = (seen[1:] + seen[:-1]) / 2
    if len(between) > BOUNDS:
        between = between[np.linspace(0, len(between) - 1, BOUNDS).round().astype(int)]
    bounds = [float(f"{bound:.3g}") for bound in between]
    return [
        AlarmRule(below=bound, patience=patience) if side == "below" else AlarmRule(above=bound, patience=patience)
        for bound in bounds
    ]
