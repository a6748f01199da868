"""The credit study as text: four tables for the terminal, and a Markdown page with the figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.credit_study.study import Study
from turnwise.credit_study.success import MEASURES, SuccessStudy
from turnwise.reporting.formatting import UNDEFINED, bounds, number
from turnwise.reporting.markdown import render
from turnwise.reporting.terminal.tables import plain_table
from turnwise.statistics import Interval

GRADIENT = ("norm", "deviation", "signal to noise", "cosine with the truth")
ADVANTAGES = ("correlation", "slope", "error")
DECISIONS = ("rank correlation", "sign errors", "bias", "deviation")
SUCCESS = (*MEASURES, "success")
SLOPES_SHOWN = 6
"""Maximum number of turns in the table of slopes, limited by its width; the CSV file has all turns."""
Row = tuple[str, list[str]]
"""A rule's title and its cells."""


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
    console.print(Text(f"Gradients of {study.tasks} groups", style="bold"))
    console.print(_table(GRADIENT, _gradient_rows(study)))
    console.print()
    console.print(Text(f"Advantages of {study.turns} turns", style="bold"))
    console.print(_table(ADVANTAGES, _advantage_rows(study)))
    console.print()
    console.print(Text("Decisions in the same state", style="bold"))
    console.print(_table(DECISIONS, _decision_rows(study)))
    console.print()
    console.print(Text("Slopes turn by turn", style="bold"))
    console.print(_table(_turn_headings(study), _slope_rows(study)))
    console.print()
    for sentence in [*limits(study), f"Intervals: 95 %, percentile bootstrap over the {study.tasks} tasks."]:
        console.print(Text(sentence, style="dim"))
    for title, reason in study.left_out.items():
        console.print(Text(f"{title} is left out: {reason}.", style="dim"))


def print_success(found: SuccessStudy, console: Console) -> None:
    """Print closeness and success by rule, and whether the one predicts the other."""
    console.print()
    console.print(Text(f"Success after {found.budget}", style="bold"))
    console.print(_table(SUCCESS, _success_rows(found)))
    console.print()
    for sentence in success_sentences(found):
        console.print(Text(sentence, style="dim"))


def success_sentences(found: SuccessStudy) -> list[str]:
    """Whether each measure of closeness predicts success, and which rules could not be asked."""
    sentences = [f"{each.measure}: {each.spelled} with success over {each.rules} rules." for each in found.predictions]
    seeds = sorted({each.success.count for each in found.trained})
    sentences.append(
        f"Intervals of success: over {' and '.join(map(str, seeds))} seeds; of a rank correlation: 95 %, percentile "
        "bootstrap over rules and seeds."
    )
    return sentences + [f"{name} is left out: the study does not judge its rule." for name in found.without]


def page(
    study: Study,
    about: Mapping[str, str],
    figure: str,
    success: Sequence[tuple[SuccessStudy, str]] = (),
) -> str:
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
        advantages=(ADVANTAGES, _advantage_rows(study)),
        decisions=(DECISIONS, _decision_rows(study)),
        slopes=(_turn_headings(study), _slope_rows(study)),
        gradients=(GRADIENT, _gradient_rows(study)),
        success=[
            (found.budget, drawn, (SUCCESS, _success_rows(found)), success_sentences(found)) for found, drawn in success
        ],
    )


def _gradient_rows(study: Study) -> list[Row]:
    # Norms differ by orders of magnitude between worlds: three significant digits.
    return [
        (
            found.title,
            [
                f"{found.gradient.norm:.3g}",
                f"{found.gradient.deviation:.3g}",
                _cell(found.gradient.signal_to_noise),
                _cell(found.gradient.cosine),
            ],
        )
        for found in study.figures
    ]


def _advantage_rows(study: Study) -> list[Row]:
    return [
        (found.title, [_cell(agreement.correlation), _cell(agreement.slope), _cell(agreement.error, digits=3)])
        for found in study.figures
        if (agreement := found.agreement)
    ]


def _decision_rows(study: Study) -> list[Row]:
    return [
        (
            found.title,
            [
                _cell(agreement.rank_correlation),
                _cell(agreement.sign_errors),
                _cell(agreement.bias, digits=3),
                _cell(agreement.deviation, digits=3),
            ],
        )
        for found in study.figures
        if (agreement := found.agreement)
    ]


def _success_rows(found: SuccessStudy) -> list[Row]:
    ordered = sorted(found.trained, key=lambda each: -each.success.value)
    return [
        (each.variant, [_cell(measure(each.rule)) for measure in MEASURES.values()] + [_cell(each.success)])
        for each in ordered
    ]


def _turn_headings(study: Study) -> list[str]:
    return [f"turn {turn + 1}" for turn in range(min(study.slope_turns, SLOPES_SHOWN))]


def _slope_rows(study: Study) -> list[Row]:
    return [
        (
            found.title,
            [UNDEFINED if slope is None else number(slope.value, 2) for slope in found.agreement.slopes[:SLOPES_SHOWN]],
        )
        for found in study.figures
        if found.agreement
    ]


def _cell(interval: Interval | None, digits: int = 2) -> str:
    if interval is None:
        return UNDEFINED
    within = bounds(interval, digits)
    return number(interval.value, digits) + (f" ({within})" if within else "")


def _table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    table = plain_table()
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(Text(heading, style="bold"), justify="right", vertical="top", no_wrap=True)
    for title, cells in rows:
        table.add_row(Text(title), *map(_below, cells))
    return table


def _below(cell: str) -> Text:
    """The cell with its interval on a second line and without leading zeros, so that the table fits 80 characters."""
    value, _, within = cell.partition(" (")
    text = Text(value)
    if within:
        text.append("\n" + re.sub(r"\b0\.", ".", within.removesuffix(")")), style="dim")
    return text
