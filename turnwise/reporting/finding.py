"""What an ablation found, as one sentence: the first line of its report, in the terminal and on the page.

It says three things, in this order: which variant beats which and by how much, which variants beat the warm start, and
what greedy replies gained over it. Only what can be told apart after Holm's correction is called a difference; where
nothing can, the sentence says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnwise.reporting.formatting import number, signed, with_bounds
from turnwise.statistics import Comparison, Interval, Judgement

DIGITS = 2


def finding(judgement: Judgement, greedy: Judgement | None = None) -> str:
    """The sentence on a judgement of sampled replies, and on one of greedy replies where there is one.

    For example: `return-to-go beats grpo-mr by 0.18 (0.10 to 0.26) in exact match; all but grpo-mr beat the warm start;
    greedy +0.22 to +0.31, all told apart.`
    """
    if any(standing.mean.count == 1 for standing in judgement.standings):
        best = max(judgement.standings, key=lambda standing: standing.mean.value)
        return (
            f"One seed decides nothing; the highest {judgement.measure} is {best.name}'s, "
            f"{number(best.mean.value, DIGITS)}."
        )
    greedy_gains = [] if greedy is None else greedy.gains
    clauses = [
        *([_pairs(judgement)] if judgement.pairs else []),
        *([_over_the_warm_start(judgement.gains)] if judgement.gains else []),
        *([_greedy(greedy_gains)] if greedy_gains else []),
    ]
    return f"{'; '.join(clauses)}." if clauses else f"There is nothing to compare {judgement.measure} with."


def _pairs(judgement: Judgement) -> str:
    count = len(judgement.pairs)
    differing = [pair for pair in judgement.pairs if not _undecided(pair)]
    if not differing:
        variants = "The two variants cannot" if count == 1 else f"No two of the {len(judgement.standings)} variants can"
        return f"{variants} be told apart in {judgement.measure}"
    largest = max(differing, key=lambda pair: abs(pair.difference.value))
    by = largest.difference
    better, worse = largest.first, largest.second
    if _lower(largest):
        better, worse, by = worse, better, _negated(by)
    differ = (
        "" if count == 1 else f" ({len(differing)} of {count} pairs {'differs' if len(differing) == 1 else 'differ'})"
    )
    return f"{better} beats {worse} by {with_bounds(by, DIGITS)} in {judgement.measure}{differ}"


def _over_the_warm_start(gains: Sequence[Comparison]) -> str:
    better = [gain.first for gain in gains if _higher(gain)]
    worse = [gain.first for gain in gains if _lower(gain)]
    if not better:
        beaten = "none beats the warm start"
    elif len(better) == len(gains):
        beaten = "all beat the warm start" if len(gains) > 1 else f"{better[0]} beats the warm start"
    elif len(better) > len(gains) / 2:
        beaten = f"all but {_listed([gain.first for gain in gains if not _higher(gain)])} beat the warm start"
    else:
        beaten = f"only {_listed(better)} {'beats' if len(better) == 1 else 'beat'} the warm start"
    return f"{beaten}, {_listed(worse)} {'falls' if len(worse) == 1 else 'fall'} below it" if worse else beaten


def _greedy(gains: Sequence[Comparison]) -> str:
    values = sorted(gain.difference.value for gain in gains)
    low, high = signed(values[0], DIGITS), signed(values[-1], DIGITS)
    spread = low if low == high else f"{low} to {high}"
    decided = [gain.first for gain in gains if not _undecided(gain)]
    if len(gains) == 1:
        told = "told apart" if decided else "not told apart"
    elif len(decided) == len(gains):
        told = "all told apart"
    else:
        told = f"told apart for {_listed(decided)}" if decided else "none told apart"
    return f"greedy {spread}, {told}"


def _higher(gain: Comparison) -> bool:
    return gain.verdict == "higher"


def _lower(gain: Comparison) -> bool:
    return gain.verdict == "lower"


def _undecided(gain: Comparison) -> bool:
    return not (_higher(gain) or _lower(gain))


def _negated(interval: Interval) -> Interval:
    low = None if interval.high is None else -interval.high
    high = None if interval.low is None else -interval.low
    return replace(interval, value=-interval.value, low=low, high=high)


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
