"""The credit study as text: four tables for the terminal, and a Markdown page with the figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.credit_study.study import RuleFigures, Study
from turnwise.credit_study.success import MEASURES, SuccessStudy
from turnwise.reporting.formatting import UNDEFINED, compact, number
from turnwise.reporting.markdown import render
from turnwise.reporting.terminal.tables import plain_table, stacked

SLOPES_SHOWN = 6
"""Maximum number of turns in the table of slopes, limited by its width; the CSV file has all turns."""
Row = tuple[str, list[str]]
"""A rule's title and its cells."""
Columns = Mapping[str, Callable[[RuleFigures], str]]
"""By heading, a rule's cell."""


def _agreement(name: str, digits: int = 2) -> Callable[[RuleFigures], str]:
    return lambda rule: compact(getattr(rule.agreement, name), digits)


# Norms differ by orders of magnitude between worlds: three significant digits.
GRADIENT: Columns = {
    "norm": lambda rule: f"{rule.gradient.norm:.3g}",
    "deviation": lambda rule: f"{rule.gradient.deviation:.3g}",
    "signal to noise": lambda rule: compact(rule.gradient.signal_to_noise),
    "cosine with the truth": lambda rule: compact(rule.gradient.cosine),
}
ADVANTAGES: Columns = {
    "correlation": _agreement("correlation"),
    "slope": _agreement("slope"),
    "error": _agreement("error", digits=3),
}
DECISIONS: Columns = {
    "rank correlation": _agreement("rank_correlation"),
    "sign errors": _agreement("sign_errors"),
    "bias": _agreement("bias", digits=3),
    "deviation": _agreement("deviation", digits=3),
}
SUCCESS = (*MEASURES, "success")


def limits(study: Study) -> list[str]:
    """Sentences on how to read the numbers: errors of an all-zero and of a perfect rule, and how exact the truth is."""
    sentences = [
        f"A rule that gives everybody 0 has an error of {number(study.error_of_no_credit, 3)}; a perfect one about "
        f"{number(study.error_of_measuring, 3)}, which is the truth's own."
    ]
    if study.reliability is not None:
        sentences.append(
            f"{study.reliability:.0%} of the variance of the truth that was measured is no noise: a perfect rule would "
            f"correlate by {number(study.reliability**0.5, 2)} with it. Slopes are corrected for that noise."
        )
    return sentences


def print_study(study: Study, console: Console) -> None:
    """Print the study: gradients, advantages, decisions, slopes by turn, and which rules were left out and why."""
    for title, columns in (
        (f"Gradients of {study.tasks} groups", GRADIENT),
        (f"Advantages of {study.turns} turns", ADVANTAGES),
        ("Decisions in the same state", DECISIONS),
        ("Slopes turn by turn", _slopes(study)),
    ):
        console.print(Text(title, style="bold"))
        console.print(_table(*_rules(study, columns)))
        console.print()
    for sentence in [*limits(study), f"Intervals: 95 %, percentile bootstrap over the {study.tasks} tasks."]:
        console.print(Text(sentence, style="dim"))
    for title, reason in study.left_out.items():
        console.print(Text(f"{title} is left out: {reason}.", style="dim"))


def print_success(comparison: SuccessStudy, console: Console) -> None:
    """Print closeness and success by rule, and whether the one predicts the other."""
    console.print()
    console.print(Text(f"Success after {comparison.budget}", style="bold"))
    console.print(_table(SUCCESS, _success_rows(comparison)))
    console.print()
    for sentence in success_sentences(comparison):
        console.print(Text(sentence, style="dim"))


def success_sentences(comparison: SuccessStudy) -> list[str]:
    """Whether each measure of closeness predicts success, and which rules could not be asked."""
    sentences = [
        f"{each.measure}: {each.spelled} with success over {each.rules} rules." for each in comparison.predictions
    ]
    seeds = sorted({each.success.count for each in comparison.trained})
    sentences.append(
        f"Intervals of success: over {' and '.join(map(str, seeds))} seeds; of a rank correlation: 95 %, percentile "
        "bootstrap over rules and seeds."
    )
    return sentences + [f"{name} is left out: the study does not judge its rule." for name in comparison.without]


def page(study: Study, about: Mapping[str, str], figure: str, success: Sequence[tuple[SuccessStudy, str]] = ()) -> str:
    """The study as a Markdown page.

    `about` lists what it was made from, by name; `figure`, and what stands beside a `success`, are the names of the
    figures' files next to the page.
    """
    return render(
        "turnwise.reporting",
        "credit-study.md.jinja",
        study=study,
        about=about,
        figure=figure,
        limits=limits(study),
        advantages=_rules(study, ADVANTAGES),
        decisions=_rules(study, DECISIONS),
        slopes=_rules(study, _slopes(study)),
        gradients=_rules(study, GRADIENT),
        success=[
            (comparison.budget, success_figure, (SUCCESS, _success_rows(comparison)), success_sentences(comparison))
            for comparison, success_figure in success
        ],
    )


def _rules(study: Study, columns: Columns) -> tuple[list[str], list[Row]]:
    """Headings and rows of the rules; the truth itself has a gradient alone."""
    rules = study.figures if columns is GRADIENT else [rule for rule in study.figures if rule.agreement]
    return [*columns], [(rule.title, [read(rule) for read in columns.values()]) for rule in rules]


def _slopes(study: Study) -> Columns:
    def slope(rule: RuleFigures, turn: int) -> str:
        value = rule.agreement.slopes[turn] if rule.agreement else None
        return UNDEFINED if value is None else number(value.value, 2)

    return {f"turn {turn + 1}": partial(slope, turn=turn) for turn in range(min(study.slope_turns, SLOPES_SHOWN))}


def _success_rows(comparison: SuccessStudy) -> list[Row]:
    ordered = sorted(comparison.trained, key=lambda each: -each.success.value)
    return [
        (each.variant, [compact(measure(each.rule)) for measure in MEASURES.values()] + [compact(each.success)])
        for each in ordered
    ]


def _table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    table = plain_table()
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(Text(heading, style="bold"), justify="right", vertical="top", no_wrap=True)
    for title, cells in rows:
        table.add_row(Text(title), *map(stacked, cells))
    return table
