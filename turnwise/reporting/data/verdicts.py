"""A judgement as tables, for the terminal and a report's page: the variants' scores, which pairs differ, and how each
variant learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.reporting.data.tables import TextTable, text_cell
from turnwise.reporting.formatting import MINUS, UNDEFINED, probability, signed, with_bounds
from turnwise.results.outcomes import Outcomes
from turnwise.statistics import Comparison, Interval, Judgement, VariantResult
from turnwise.statistics.curves import AtEqualBudget
from turnwise.statistics.interval import SINGULAR
from turnwise.statistics.verdict import Learning

DIGITS = 2
ENDED_COUNT = (
    "Runs that were ended early count with the policy that they ended with; on the way they keep their last value, and "
    "a value that they had not reached they never reach."
)


def tables(
    judgement: Judgement,
    references: Mapping[str, Interval] | None = None,
    outcomes: Outcomes | None = None,
    where: str = " on the test task set",
) -> list[TextTable]:
    """The tables of a judgement, without empty ones.

    `references` are further rows below the variants: the scores of the warm start and the baseline policies, by name.
    `outcomes` has the runs that were ended early or left out, if there are any. `where` the measure was taken follows
    its name in the title.
    """
    text_tables = [standings(judgement, references or {}, outcomes, where)]
    if judgement.pairs:
        text_tables.append(pairs(judgement))
    if judgement.learning:
        text_tables.append(learning(judgement))
    return text_tables


def standings(
    judgement: Judgement, references: Mapping[str, Interval], outcomes: Outcomes | None = None, where: str = ""
) -> TextTable:
    """One row per variant, marked where runs were ended or left out, then one per entry of `references`.

    A variant's columns: mean and interquartile mean over seeds and, where there are reference points, the mean
    normalised to random = 0 and oracle = 1, and the gain over the warm start with its verdict.
    """
    rows = [
        [
            _row_name(standing, outcomes),
            text_cell(standing.mean),
            text_cell(standing.interquartile_mean),
            text_cell(standing.normalised),
            UNDEFINED if standing.gain is None else text_cell(standing.gain.difference, with_sign=True),
            UNDEFINED if standing.gain is None else probability(standing.gain.corrected),
            UNDEFINED if standing.gain is None else standing.gain.verdict,
        ]
        for standing in judgement.standings
    ]
    for name, each in references.items():
        tasks = "1 task" if each.count == 1 else f"{each.count} tasks"
        rows.append([f"{name}\n{tasks}", text_cell(each), *[UNDEFINED] * 5])
    columns = ["", "mean", "inter-\nquartile\nmean", "normalised", "gain over the\nwarm start", "p (Holm)", "verdict"]
    has_references = bool(references) or any(each.normalised or each.gain for each in judgement.standings)
    level = f"{100 * judgement.level:g} %"
    notes = [
        f"Beneath each value its {level} interval: of means over seeds, or over tasks where there is one "
        "policy; of gains over seeds and tasks.",
        *(["Normalised: 0 is the random policy, 1 the oracle."] if has_references else []),
    ]
    if outcomes is not None:
        notes += [*outcomes.sentences(), *([ENDED_COUNT] if outcomes.ended else [])]
    return TextTable("standings", f"{judgement.measure}{where}", columns, rows, [*notes, *judgement.notes])


def _row_name(standing: VariantResult, outcomes: Outcomes | None) -> str:
    mean = standing.mean
    seeds = f"{mean.count} {SINGULAR[mean.over] if mean.count == 1 else mean.over}"
    mark = "" if outcomes is None else outcomes.mark(standing.name)
    return "\n".join([standing.name, seeds, *([mark] if mark else [])])


def pairs(judgement: Judgement) -> TextTable:
    """One row per pair of variants: the first compared with the second."""
    rows = [
        [
            f"{pair.first}\n{MINUS} {pair.second}",
            text_cell(pair.difference, with_sign=True),
            probability(pair.corrected),
            pair.verdict,
            UNDEFINED if pair.effect is None else signed(pair.effect, 2),
            UNDEFINED if pair.improvement is None else f"{100 * pair.improvement:.0f} %",
            exact(pair),
        ]
        for pair in judgement.pairs
    ]
    columns = ["", "difference", "p (Holm)", "verdict", "effect", "P(better)", "exact p"]
    notes = []
    if any(pair.effect is not None for pair in judgement.pairs):
        notes.append("Effect: the difference in deviations of the runs (Hedges' g).")
    if any(pair.improvement is not None for pair in judgement.pairs):
        notes.append("P(better): that a run of the first beats one of the second.")
    if any(pair.exact is not None for pair in judgement.pairs):
        notes.append("Exact p: of a test over runs that assumes nothing, and the smallest that so many runs can give.")
    notes = [" ".join(notes)] if notes else []
    if not all(pair.paired for pair in judgement.pairs):
        notes.append("Variants with other seeds, or other tasks, are not compared run by run.")
    return TextTable("pairs", "Pairs of variants", columns, rows, notes)


def learning(judgement: Judgement) -> TextTable:
    """One row per variant: how it learned, measured on the validation task set."""
    stated = judgement.learning[0].reached.stated
    rows = [[each.name, text_cell(each.area), _format_reached(each)] for each in judgement.learning]
    columns = ["", "area under the curve", f"iterations to {stated:g}"]
    notes = [
        "Area: the mean on the way, on the validation task set. Iterations: the median run's, and how many got there."
    ]
    return TextTable("learning", "On the way", columns, rows, notes)


def budgets(at_equal: Sequence[AtEqualBudget]) -> TextTable:
    """For each cost, what every variant shows at the same, and the difference of each pair, on the validation tasks."""
    rows = [
        [at.heading if place == 0 else "", name, with_bounds(interval, DIGITS, sign)]
        for at in at_equal
        for place, (name, interval, sign) in enumerate(
            [
                *((name, interval, False) for name, interval in at.shown.items()),
                *((f"{one} {MINUS} {other}", interval, True) for one, other, interval in at.differences),
            ]
        )
    ]
    notes = [
        "At the most that every run has spent, on the validation tasks, between evaluations on the straight line. "
        "Runs that were ended early keep their last value, and limit no budget. Tokens are those of replies in "
        "training, environment steps the replies that the world answered, seconds what each stage took when it was "
        "computed, evaluations left out. The intervals are those of each comparison alone: ablation.budget, written "
        "down before the runs, gives verdicts."
    ]
    return TextTable("budgets", "At the same cost", ["", "", "result"], rows, notes)


def exact(comparison: Comparison) -> str:
    """The exact test's p-value, and the smallest one possible with this number of runs."""
    if comparison.exact is None or comparison.smallest is None:
        return UNDEFINED
    return f"{probability(comparison.exact)}\n≥ {comparison.smallest:.2g}"


def _format_reached(variant_learning: Learning) -> str:
    iterations = [at for at in variant_learning.reached.at if at is not None]
    share = f"{len(iterations)} of {len(variant_learning.reached.at)}"
    return share if variant_learning.reached.median is None else f"{variant_learning.reached.median:g}\n{share}"
