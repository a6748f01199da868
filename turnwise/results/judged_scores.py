"""Scores of any system as report data: the verdicts, tables, figures and finding that an ablation has, with power.

What a comparison leaves open has a sentence that says below which difference so many runs decide nothing: the
difference that a test at the first step of Holm's correction would find with a probability of 80 %, by the spread that
these runs show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.results.report_data import SHARE, ReportColumn, ReportData, Row
from turnwise.statistics import Comparison, Interval, Judgement, Results, judge
from turnwise.statistics.verdict import smallest_decidable

COLUMN = "score"


def judged_scores(
    methods: Mapping[str, Results],
    measure: str,
    *,
    policies: bool,
    description: str = "",
    sources: Sequence[tuple[str, str]] = (),
) -> ReportData:
    """The report on the results of methods.

    Args:
        methods: by name, at least one.
        measure: what the scores are called. Higher is better.
        policies: whether each method is one policy, compared over tasks (`turnwise.statistics.judge`).
        description: how the results were read.
        sources: (name, digest) of what they were read from.
    """
    values = [value for each in methods.values() for run in each.runs.values() for value in run.values()]
    share = all(0.0 <= value <= 1.0 for value in values)
    judgement = judge(measure, methods, share=share, policies=policies)
    means = {standing.name: standing.mean for standing in judgement.standings}
    return ReportData(
        title=f"{measure} of {len(methods)} methods",
        description=description,
        columns=[ReportColumn(COLUMN, measure, SHARE if share else "", "up")],
        rows=[Row(name, "variant", {COLUMN: mean}) for name, mean in means.items()],
        lineage=list(sources),
        notes=[_size(methods, means), *_power(methods, judgement, policies)],
        judgement=judgement,
    )


def _size(methods: Mapping[str, Results], means: Mapping[str, Interval]) -> str:
    seeds, tasks = (
        {len(of(each)) for each in methods.values()} for of in (lambda each: each.runs, lambda each: each.tasks)
    )
    return (
        f"Read: {len(means)} methods, {_range(seeds)} {'seed' if seeds == {1} else 'seeds'} each, {_range(tasks)} "
        f"{'task' if tasks == {1} else 'tasks'} each."
    )


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _power(methods: Mapping[str, Results], judgement: Judgement, policies: bool) -> list[str]:
    """A sentence for every pair that is left open, and one for all where none can be decided."""
    significance = (1 - judgement.level) / max(1, len(judgement.pairs))
    left_open = [pair for pair in judgement.pairs if pair.verdict not in ("higher", "lower")]
    return [_sentence(pair, methods, significance, policies) for pair in left_open]


def _sentence(pair: Comparison, methods: Mapping[str, Results], significance: float, policies: bool) -> str:
    smallest = smallest_decidable(
        methods[pair.first], methods[pair.second], significance=significance, policies=policies
    )
    over, count = ("task", pair.difference.count) if policies else ("seed", pair.difference.count)
    runs = f"{count} {over}{'' if count == 1 else 's'}"
    if smallest is None:
        return (
            f"{runs} cannot decide any difference between {pair.first} and {pair.second}: nothing shows how runs vary."
        )
    return f"{runs} cannot decide a difference below {smallest:.2g} between {pair.first} and {pair.second}."
