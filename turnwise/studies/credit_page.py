"""The credit study as text: three tables for the terminal, and a Markdown page with the figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.reporting.formatting import UNDEFINED, bounds, number
from turnwise.statistics import Interval
from turnwise.studies.credit_study import Study
from turnwise.studies.credit_truth import Agreement
from turnwise.studies.gradient_noise import GradientNoise

GRADIENT = ("norm", "deviation", "signal to noise", "cosine with the truth")
ADVANTAGES = ("correlation", "slope", "error")
SLOPES_SHOWN = 6
"""Maximum number of turns in the table of slopes, limited by its width; the CSV file has all turns."""
Row = tuple[str, list[str]]
"""A rule's title and its cells."""

EXPLANATIONS = (
    "Truth: the advantage of a reply is the mean return of continuations after it, minus that of continuations before "
    "it, from the same state of the world.",
    "Norm and deviation: of the mean gradient over the groups and of one group's, in the rule's own scale. Signal to "
    "noise does not depend on the scale, and holds for one group: n groups have the root of n times as much.",
    "Cosine: between the mean gradient and that of the true advantages on the same trajectories.",
    "Slope: how much of a true difference the rule passes on, 1 where it keeps the scale of the rewards. Slopes that "
    "differ between turns change the direction of the gradient; slopes that agree only change its length.",
    "Error: mean absolute difference from the truth, in units of the return, in the scale that suits the rule best.",
)


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
    """Print the study: gradients, advantages, slopes by turn, and which rules were left out and why."""
    console.print(Text(f"Gradients of {study.tasks} groups", style="bold"))
    console.print(_table(GRADIENT, _gradient_rows(study)))
    console.print()
    console.print(Text(f"Advantages of {study.turns} turns", style="bold"))
    console.print(_table(ADVANTAGES, _advantage_rows(study)))
    console.print()
    console.print(Text("Slopes turn by turn", style="bold"))
    console.print(_table(_turn_headings(study), _slope_rows(study)))
    console.print()
    for sentence in [*limits(study), _basis(study)]:
        console.print(Text(sentence, style="dim"))
    for title, reason in study.left_out.items():
        console.print(Text(f"{title} is left out: {reason}.", style="dim"))


def page(study: Study, about: Mapping[str, str], figure: str) -> str:
    """The study as a Markdown page.

    `about` lists what it was made from, by name; `figure` is the name of the figure's file next to the page.
    """
    left_out = "".join(f"* `{title}`: {reason}.\n" for title, reason in study.left_out.items())
    facts = "".join(f"| {name} | {value} |\n" for name, value in about.items())
    return f"""# What credit does

Written by `turnwise credit`: the same parameters give the same page.

Every rule on the same {study.trajectories} trajectories of {study.tasks} tasks, beside the truth by replay: each of
their {study.turns} states was entered again, with the same task, seed and actions, and played on from exactly the
recorded tokens.

![Every rule beside the truth]({figure})

## Advantages

{_markdown(ADVANTAGES, _advantage_rows(study))}
### Slopes turn by turn

{_markdown(_turn_headings(study), _slope_rows(study))}
## Gradients

{_markdown(GRADIENT, _gradient_rows(study))}
{" ".join(limits(study))} {_basis(study)}

{"".join(f"* {sentence}{chr(10)}" for sentence in EXPLANATIONS)}
## Left out

{left_out or "No rule." + chr(10)}
## Made from

| | |
|---|---|
{facts}"""


def _basis(study: Study) -> str:
    return f"Intervals: 95 %, percentile bootstrap over the {study.tasks} tasks."


def _gradient_rows(study: Study) -> list[Row]:
    return [(found.title, _gradient_cells(found.gradient)) for found in study.figures]


def _gradient_cells(gradient: GradientNoise) -> list[str]:
    scale = [_significant(gradient.norm), _significant(gradient.deviation)]
    return [*scale, _cell(gradient.signal_to_noise), _cell(gradient.cosine)]


def _advantage_rows(study: Study) -> list[Row]:
    return [(found.title, _agreement_cells(found.agreement)) for found in study.figures if found.agreement]


def _agreement_cells(agreement: Agreement) -> list[str]:
    return [_cell(agreement.correlation), _cell(agreement.slope), _cell(agreement.error, digits=3)]


def _turn_headings(study: Study) -> list[str]:
    return [f"turn {turn + 1}" for turn in range(min(study.slope_turns, SLOPES_SHOWN))]


def _slope_rows(study: Study) -> list[Row]:
    return [(found.title, _slope_cells(found.agreement)) for found in study.figures if found.agreement]


def _slope_cells(agreement: Agreement) -> list[str]:
    return [UNDEFINED if slope is None else number(slope.value, 2) for slope in agreement.slopes[:SLOPES_SHOWN]]


def _cell(interval: Interval | None, digits: int = 2) -> str:
    if interval is None:
        return UNDEFINED
    within = bounds(interval, digits)
    return number(interval.value, digits) + (f" ({within})" if within else "")


def _significant(value: float) -> str:
    """The value with three significant digits, since norms differ by orders of magnitude between worlds."""
    return f"{value:.3g}"


def _table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
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


def _markdown(headings: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [f"| rule | {' | '.join(headings)} |", "|---|" + "---|" * len(headings)]
    lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in rows]
    return "\n".join(lines) + "\n"
