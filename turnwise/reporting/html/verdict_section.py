"""The page's section on verdicts: each variant's scores, which pairs differ, and how fast each variant learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from turnwise.reporting.data.report_data import Story
from turnwise.reporting.figures import comparison
from turnwise.reporting.figures.comparison import Figure
from turnwise.reporting.formatting import UNDEFINED, bounds, number, signed
from turnwise.reporting.html.history_sections import Grid, section
from turnwise.reporting.html.markup import Markup, join, tag
from turnwise.statistics import Interval
from turnwise.statistics.verdict import Comparison, Judgement, Learning, Standing

CSV_HEADER = ("first", "second", "difference", "low", "high", "p", "corrected p", "effect", "improvement", "verdict")
MEANINGS = (
    "Interquartile mean: of the runs' values without the lowest and the highest quarter. Normalised: 0 is the random "
    "player, 1 the oracle.",
    "Effect: Hedges' g, the difference in deviations of the runs. Better: the probability that a run of the first is "
    "better than one of the second.",
    "The intervals are those of each comparison alone; the verdicts go by p after correction.",
)


def verdict_section(story: Story, legend: Markup, grid: Grid) -> Markup | None:
    """The section on verdicts by the primary metric; None if the story has no judgement."""
    judged = story.judgement
    if judged is None:
        return None
    parts = [tag("p", f"By {judged.measure} on the test panel, sampled, over seeds and tasks."), _standings(judged)]
    if judged.pairs:
        parts += [tag("h3", "Pairs of variants"), _pairs(judged.pairs)]
    if judged.learning:
        parts += [tag("h3", "On the way, on the validation panel"), _learning(judged.learning)]
    if judged.profiles:
        parts += [tag("h3", "Performance profiles"), legend, grid([profile_figure(story)])]
    notes = [tag("p", note, class_="fine") for note in [*judged.notes, *(MEANINGS if judged.pairs else MEANINGS[:1])]]
    return section("Verdicts", *parts, *notes)


def _standings(judged: Judgement) -> Markup:
    heads = ("", "mean", "interquartile mean", "normalised", "gain over the warm start", "p, corrected", "verdict")
    return _table(heads, [_standing(standing) for standing in judged.standings])


def _standing(standing: Standing) -> list[object]:
    gain = standing.gain
    beside: list[object] = [UNDEFINED, UNDEFINED, UNDEFINED]
    if gain is not None:
        beside = [_interval(gain.difference, sign=True), _probability(gain.corrected), told(gain)]
    means = (standing.mean, standing.interquartile_mean, standing.normalised)
    return [standing.name, *(_interval(mean) for mean in means), *beside]


def _pairs(pairs: Sequence[Comparison]) -> Markup:
    heads = ("", "difference", "effect", "better", "p, corrected", "verdict")
    rows = [
        [
            f"{pair.first} − {pair.second}",
            _interval(pair.difference, sign=True),
            UNDEFINED if pair.effect is None else signed(pair.effect, 2),
            UNDEFINED if pair.improvement is None else number(pair.improvement, 2),
            _probability(pair.corrected),
            told(pair),
        ]
        for pair in pairs
    ]
    return _table(heads, rows)


def _learning(learning: Sequence[Learning]) -> Markup:
    stated = number(learning[0].reached.stated, 2)
    heads = ("", "mean over the curve", f"runs that reached {stated}", "after (median)")
    rows = [
        [
            of.name,
            _interval(of.area),
            f"{sum(at is not None for at in of.reached.at)} of {len(of.reached.at)}",
            UNDEFINED if of.reached.median is None else f"{of.reached.median:g} iterations",
        ]
        for of in learning
    ]
    return _table(heads, rows)


def told(comparison: Comparison) -> str:
    """The verdict as text that can stand alone, e.g. `higher than grpo`."""
    if comparison.verdict in ("higher", "lower"):
        return f"{comparison.verdict} than {comparison.second}"
    return comparison.verdict


def sentence(comparison: Comparison) -> str:
    """A comparison as one line: the two variants, their difference with interval, and the verdict."""
    limits = bounds(comparison.difference, 2)
    interval = f" ({limits})" if limits else ""
    value = signed(comparison.difference.value, 2)
    return f"{comparison.first} − {comparison.second}: {value}{interval}, {told(comparison)}"


def verdict_rows(judged: Judgement) -> list[tuple[object, ...]]:
    """All comparisons as rows under `CSV_HEADER`: gains over the warm start first, then pairs of variants."""
    gains = [standing.gain for standing in judged.standings if standing.gain is not None]
    return [
        (
            each.first,
            each.second,
            each.difference.value,
            each.difference.low,
            each.difference.high,
            each.p,
            each.corrected,
            each.effect,
            each.improvement,
            each.verdict,
        )
        for each in [*gains, *judged.pairs]
    ]


def profile_figure(story: Story) -> Figure:
    """Performance profiles: the share of tasks and runs above each threshold; a higher curve is better."""
    assert story.judgement is not None, "a profile is drawn of a judgement"
    profiles, measure = story.judgement.profiles, story.judgement.measure
    look = comparison.styles(story)

    def draw(legend: bool) -> Drawing:
        drawing, axes = comparison.axes_of(3.4, 2.35)
        for name, profile in profiles.items():
            style, thresholds = look[name], [threshold for threshold, _ in profile]
            limits = [(low, high) for _, of in profile for low, high in [(of.low, of.high)] if low is not None]
            if len(limits) == len(profile):
                low, high = np.array(limits, dtype=float).T
                axes.fill_between(thresholds, low, high, color=style.colour, alpha=0.13, linewidth=0)
            axes.plot(
                thresholds,
                [share.value for _, share in profile],
                color=style.colour,
                dashes=style.dashes,
                linewidth=1.6,
                marker=style.marker,
                markersize=4,
                markevery=4,
            )
        axes.set_title("share of tasks and runs with more")
        axes.set_xlabel(measure)
        axes.set_ylim(-0.03, 1.03)
        if legend:
            comparison.legend_below(drawing, [comparison.handle(name, look[name]) for name in profiles])
        return drawing

    data: list[tuple[str | int | float | None, ...]] = [
        (name, threshold, found.value, found.low, found.high)
        for name, profile in profiles.items()
        for threshold, found in profile
    ]
    described = f"Performance profiles: the share of tasks and runs whose {measure} is above each threshold."
    return Figure("performance-profiles", described, ("variant", "threshold", "share", "low", "high"), data, draw)


def _interval(interval: Interval | None, sign: bool = False) -> Markup | str:
    if interval is None:
        return UNDEFINED
    limits = bounds(interval, 2)
    value = signed(interval.value, 2) if sign else number(interval.value, 2)
    return join(value, tag("span", limits, class_="bounds")) if limits else value


def _probability(p: float | None) -> str:
    if p is None:
        return UNDEFINED
    return "< 0.001" if p < 0.001 else number(p, 3)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body), class_="plain"), class_="wide")
