"""The page's sections on the course of training: curves by topic, endings, alarms, and time and tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from turnwise.reporting.data.history import VariantWork
from turnwise.reporting.data.report_data import STAGES, Story
from turnwise.reporting.figures import comparison
from turnwise.reporting.figures.comparison import Figure
from turnwise.reporting.figures.history import endings_figure, endings_in, look
from turnwise.reporting.formatting import duration, of_processes
from turnwise.reporting.html.markup import Markup, join, tag
from turnwise.reporting.html.samples import ENDINGS


class Grid(Protocol):
    """A function that arranges figures on the page."""

    def __call__(self, drawn: Sequence[Figure], alone: bool = False) -> Markup:
        """The figures in equal columns; with `alone` in one column, for a wide figure."""


COUNTS: tuple[tuple[str, Callable[[VariantWork], int]], ...] = (
    ("runs", lambda work: work.runs),
    ("episodes in training", lambda work: work.episodes),
    ("turns in training", lambda work: work.turns),
    ("tokens sampled", lambda work: work.sampled_tokens),
    ("tokens read", lambda work: work.read_tokens),
    ("tokens trained on", lambda work: work.trained_tokens),
    ("tokens sampled in evaluation", lambda work: work.evaluation_tokens),
)
BY_VARIANT = ("sampling", "worlds", "update", "evaluation")
"""The stages whose seconds are shown per variant."""
RESPONSES = {"log": "went on", "stop": "stopped the run", "return": "went back to the last healthy policy"}


def curves_sections(story: Story, legend: Markup, grid: Grid) -> list[Markup]:
    """A list with the section of learning curves, one part per topic; empty if there are no curves."""
    if not story.curves:
        return []
    seeds = len({curve.seed for curve in story.curves})
    meaning = (
        "One seed: no interval, and none is drawn."
        if seeds == 1
        else f"Line: mean over the seeds. Band: from the lowest to the highest of the {seeds} seeds; it is a range, "
        "not a confidence interval (the table has those)."
    )
    parts: list[Markup] = []
    drawn = dict(
        zip(dict.fromkeys(curve.metric for curve in story.curves), comparison.learning_curves(story), strict=True)
    )
    for topic in dict.fromkeys(curve.topic for curve in story.curves):
        metrics = dict.fromkeys(curve.metric for curve in story.curves if curve.topic == topic)
        parts.append(join(tag("h3", topic) if topic else "", grid([drawn[metric] for metric in metrics])))
    return [section("Learning curves", tag("p", meaning, class_="fine"), legend, *parts)]


def endings_section(story: Story, grid: Grid) -> Markup | None:
    """The section on how training episodes ended; None without data."""
    told = [endings for endings in story.endings if endings.shares]
    if not told:
        return None
    swatches = [tag("li", _swatch(name), ENDINGS.get(name, name)) for name in endings_in(told)]
    meaning = "Shares of the training episodes of each batch; the mean over the runs of a variant."
    legend = tag("ul", *swatches, class_="legend")
    return section(
        "How episodes ended",
        tag("p", meaning, class_="fine"),
        legend,
        grid([endings_figure(told)], alone=len(told) > 1),
    )


def alarms_section(story: Story) -> Markup | None:
    """The section with every alarm that was raised; None if monitoring was off."""
    if story.alarms is None:
        return None
    if not story.alarms:
        return section("Alarms", tag("p", "No monitor left its bounds."))
    heads = tag("tr", *(tag("th", name, scope="col") for name in ("run", "iteration", "what was seen", "the run")))
    rows = [
        tag(
            "tr",
            tag("th", f"{alarm.variant} seed {alarm.seed}", scope="row"),
            tag("td", alarm.iteration),
            tag("td", alarm.words),
            tag("td", RESPONSES.get(alarm.response, alarm.response)),
        )
        for alarm in story.alarms
    ]
    return section("Alarms", tag("table", tag("thead", heads), tag("tbody", *rows), class_="plain"))


def account_section(story: Story, grid: Grid) -> Markup | None:
    """The section with the time account and the cost of each variant; None if neither is known."""
    parts: list[Markup] = []
    if story.seconds:
        total = duration(sum(story.seconds.values()))
        parts += [tag("p", f"{total}{of_processes(story)} in all."), grid([comparison.time_account(story)], alone=True)]
    if story.work:
        parts += [
            tag("h3", "By variant"),
            _work_table(story.work),
            tag(
                "p",
                "All runs of a variant together. What variants share, such as a first batch, counts for each of them.",
                class_="fine",
            ),
        ]
    return section("Time and tokens", *parts) if parts else None


def _work_table(work: Sequence[VariantWork]) -> Markup:
    stages = [stage for stage in STAGES if stage in BY_VARIANT and any(stage in each.seconds for each in work)]
    heads = tag("tr", tag("th", ""), *(tag("th", each.variant, scope="col") for each in work))
    rows = [
        tag("tr", tag("th", name, scope="row"), *(tag("td", f"{count(each):,}") for each in work))
        for name, count in COUNTS
    ]
    rows += [
        tag("tr", tag("th", f"time: {stage}", scope="row"), *(tag("td", _seconds(each, stage)) for each in work))
        for stage in stages
    ]
    return tag("div", tag("table", tag("thead", heads), tag("tbody", *rows), class_="plain numbers"), class_="wide")


def _seconds(work: VariantWork, stage: str) -> str:
    return duration(work.seconds[stage]) if stage in work.seconds else "–"


def work_rows(story: Story) -> list[tuple[object, ...]]:
    """The cost of each variant as rows (variant, what, how much), for CSV."""
    counts = [(each.variant, name, count(each)) for each in story.work for name, count in COUNTS]
    return counts + [
        (each.variant, f"{stage} seconds", seconds) for each in story.work for stage, seconds in each.seconds.items()
    ]


def section(title: str, *children: object) -> Markup:
    """A page section with a heading."""
    return join("\n", tag("section", tag("h2", title), *children))


def _swatch(name: str) -> Markup:
    """A patch in the ending's colour, with its hatching drawn as an SVG path."""
    colour, hatch = look(name)
    slopes = {"/": "M0 14L14 0", "\\": "M0 0L14 14", "x": "M0 14L14 0M0 0L14 14", "+": "M7 0V14M0 7H14"}
    stroke = slopes.get(hatch[:1], "M3 4h1M9 4h1M6 9h1M12 9h1" if hatch else "")
    lines = f'<path d="{stroke}" stroke="#fff" stroke-width="1.3"/>' if stroke else ""
    return Markup(
        f'<svg class="swatch" width="14" height="14" aria-hidden="true"><path d="M0 0h14v14h-14z" fill="{colour}"/>'
        f"{lines}</svg>"
    )
