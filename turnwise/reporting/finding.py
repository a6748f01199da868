"""What an ablation found, as one sentence: the first line of its report, in the terminal and on the page.

It says three things, in this order: which variant is best, what it beats and by how much, and from which others it
cannot be told apart; which variants beat the warm start; and which of them do with greedy replies. Only what can be
told apart after Holm's correction is called a difference; where nothing can, the sentence says so. Where runs were
ended early, which count, or left out by a fault, which do not, further sentences say how many, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.reporting.formatting import number, race_summary, signed, with_bounds
from turnwise.results.report_data import ReportData
from turnwise.statistics import Comparison, Interval, Judgement
from turnwise.statistics.interval import SINGULAR

DIGITS = 2
MOST_NAMED = 4
"""How many variants have their gain each; of more the least and the most are named."""


BEFORE_TRAINING = "Before iteration 1 of "
"""Begins a note on variants whose reinforcement has nothing to begin with; their names and a colon follow."""


def report_finding(report: ReportData) -> str:
    """What a report says first; empty if it has nothing to say.

    Its finding, after how many seeds it was decided where these were added, which runs were ended early or left out,
    and which variants had nothing to begin with.
    """
    notes = [note.removeprefix(BEFORE_TRAINING) for note in report.notes if note.startswith(BEFORE_TRAINING)]
    names = ", ".join(note.partition(":")[0] for note in notes)
    sentences = [] if report.judgement is None else [finding(report.judgement, report.greedy)]
    sentences += [] if report.race is None else [race_summary(report.race)]
    sentences += [] if report.outcomes is None else report.outcomes.sentences()
    sentences += [f"Reinforcement had nothing to begin with in {names}: see the notes."] if names else []
    return " ".join(sentences)


def finding(judgement: Judgement, greedy: Judgement | None = None) -> str:
    """The sentence on a judgement of sampled replies, and on one of greedy replies where there is one.

    For example: `return-to-go beats grpo-mr by 0.18 (0.10 to 0.26) in exact match, and cannot be told apart from
    grpo-or; all but grpo-mr beat the warm start; with greedy replies all beat it (return-to-go +0.31, grpo-or +0.24,
    grpo-mr +0.22).`
    """
    single = [standing.mean for standing in judgement.standings if standing.mean.count == 1]
    # Others, with several seeds, may have been decided.
    if single and all(each.verdict == "one seed: not decided" for each in judgement.comparisons):
        best = max(judgement.standings, key=lambda standing: standing.mean.value)
        return (
            f"One {SINGULAR[single[0].over]} decides nothing; the highest {judgement.measure} is {best.name}'s, "
            f"{number(best.mean.value, DIGITS)}."
        )
    greedy_gains = [] if greedy is None else greedy.gains
    clauses = [
        *([_pairs(judgement)] if judgement.pairs else []),
        *([_over_the_warm_start(judgement.gains, greedy_gains)] if judgement.gains else []),
    ]
    if clauses:
        return f"{'; '.join(clauses)}."
    (alone,) = judgement.standings
    return f"There is only {alone.name}, {number(alone.mean.value, DIGITS)} in {judgement.measure}: nothing to compare."


def _pairs(judgement: Judgement) -> str:
    differing = [pair for pair in judgement.pairs if pair.verdict in ("higher", "lower")]
    if not differing:
        count = len(judgement.standings)
        if count == 2:
            pair = judgement.pairs[0]
            difference = pair.difference
            if pair.corrected is not None and pair.corrected < 1 and difference.low is None:
                apart = number(abs(difference.value), DIGITS)
                return (
                    f"The two variants are {apart} apart in {judgement.measure} wherever both were tested, and "
                    f"{difference.count} {difference.over.partition(' ')[0]} are too few to decide"
                )
            apart = with_bounds(_negate(difference) if difference.value < 0 else difference, DIGITS)
            return f"The two variants cannot be told apart in {judgement.measure}: they are {apart} apart"
        return f"No two of the {count} variants can be told apart in {judgement.measure}"
    best = max(judgement.standings, key=lambda standing: standing.mean.value).name
    beaten = _beaten_by(best, differing)
    if not beaten:
        # The highest mean scatters so widely that it beats nothing, while two others differ.
        best, beaten = _largest(differing)
    others = [each.name for each in judgement.standings if each.name != best and each.name not in beaten]
    level = f", and cannot be told apart from {_join_names(others)}" if others else ""
    return f"{best} beats {_by_how_much(beaten)} in {judgement.measure}{level}"


def _beaten_by(name: str, differing: Sequence[Comparison]) -> dict[str, Interval]:
    """What a variant beats, and by how much."""
    over = {pair.second: pair.difference for pair in differing if pair.first == name and pair.verdict == "higher"}
    under = {
        pair.first: _negate(pair.difference) for pair in differing if pair.second == name and pair.verdict == "lower"
    }
    return over | under


def _largest(differing: Sequence[Comparison]) -> tuple[str, dict[str, Interval]]:
    """The variant that beats another by most, and what it beats."""
    largest = max(differing, key=lambda pair: abs(pair.difference.value))
    better = largest.second if largest.verdict == "lower" else largest.first
    return better, _beaten_by(better, differing)


def _by_how_much(beaten: Mapping[str, Interval]) -> str:
    """Each of up to two variants with its distance, or all of them with the distance of the nearest."""
    nearest_first = sorted(beaten, key=lambda name: beaten[name].value)
    if len(beaten) <= 2:
        return _join_names([f"{name} by {with_bounds(beaten[name], DIGITS)}" for name in nearest_first])
    nearest = nearest_first[0]
    return f"{_join_names(list(beaten))}, the nearest ({nearest}) by {with_bounds(beaten[nearest], DIGITS)},"


def _over_the_warm_start(gains: Sequence[Comparison], greedy: Sequence[Comparison]) -> str:
    """Which variants beat the warm start, and which do so with greedy replies, where these were tested."""
    sampled = _over(gains, "the warm start")
    if not greedy:
        return sampled
    spread = _each(greedy)
    if _over(greedy, "the warm start") == sampled:
        also = "also with" if any(gain.verdict == "higher" for gain in gains) else "nor with"
        return f"{sampled}, {also} greedy replies ({spread})"
    return f"{sampled}; with greedy replies {_over(greedy, 'it')} ({spread})"


def _each(gains: Sequence[Comparison]) -> str:
    """Which variant gained how much, the largest first; of many the least and the most. Never a range without names:
    it would read as an interval.
    """
    falling = sorted(gains, key=lambda gain: -gain.difference.value)
    gain_texts = [(gain.first, signed(gain.difference.value, DIGITS)) for gain in falling]
    if len({value for _, value in gain_texts}) == 1:
        return gain_texts[0][1] if len(gain_texts) == 1 else f"{gain_texts[0][1]} each"
    if len(gain_texts) <= MOST_NAMED:
        return ", ".join(f"{name} {value}" for name, value in gain_texts)
    (most, highest), (least, lowest) = gain_texts[0], gain_texts[-1]
    return f"from {least} {lowest} to {most} {highest}"


def _over(gains: Sequence[Comparison], beaten: str) -> str:
    """Which variants beat what they began with, and which fall below it."""
    better = [gain.first for gain in gains if gain.verdict == "higher"]
    worse = [gain.first for gain in gains if gain.verdict == "lower"]
    if not better:
        clause = f"none beats {beaten}"
    elif len(better) == len(gains) > 1:
        clause = f"{'both' if len(gains) == 2 else 'all'} beat {beaten}"
    elif len(better) > len(gains) / 2 and not worse and len(gains) > 1:
        clause = f"all but {_join_names([gain.first for gain in gains if gain.verdict != 'higher'])} beat {beaten}"
    else:
        only = "only " if len(gains) > 1 and not worse else ""
        clause = f"{only}{_join_names(better)} {'beats' if len(better) == 1 else 'beat'} {beaten}"
    return f"{clause}, {_join_names(worse)} {'falls' if len(worse) == 1 else 'fall'} below it" if worse else clause


def _negate(interval: Interval) -> Interval:
    low = None if interval.high is None else -interval.high
    high = None if interval.low is None else -interval.low
    return replace(interval, value=-interval.value, low=low, high=high)


def _join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
