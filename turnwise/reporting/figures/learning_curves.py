"""Learning curves: one figure per metric, with the mean and the range over the seeds of every variant.

Where a guard or an alarm has ended a run, its curve ends with a cross. Mean and range go as far as all runs of the
variant do: a mean over those that are left would be one over the runs that did not collapse. From there on each run
that went on is a thin line of its own.

Of costs: for each axis, the mean and the range over the seeds of every variant against what was spent. Between
evaluations a run is on the straight line, and a variant's mean goes as far as each of its runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from turnwise.reporting.figures.drawing import (
    GREY,
    Figure,
    LineStyle,
    axes_of,
    draw_band,
    file_name,
    handle,
    legend_below,
    styles,
    wrapped,
)
from turnwise.reporting.formatting import heading
from turnwise.results.report_data import SHARE, CostCurve, Costs, Curve, ReportData
from turnwise.statistics.curves import interpolated

CURVE_INCHES = (3.4, 2.45)
MATTER = ("validation/sampled", "validation/greedy", "rollout/success", "policy/entropy", "credit/reward")
"""The curves that a report opens with, as far as it has them."""
MOST_THAT_MATTER = 4
MOST_VALUES = 50
"""Iterations of a curve that a page can be asked for, so that the page of a long run stays small."""


def learning_curves(report: ReportData) -> list[Figure]:
    """One figure per metric, in the order in which metrics first occur in the curves."""
    return list(_by_metric(report).values())


def curves_that_matter(report: ReportData) -> list[tuple[str, Figure]]:
    """Four learning curves to begin with, by topic: those of `MATTER` that the report has, else its first."""
    figures, topics = _by_metric(report), {curve.metric: curve.topic for curve in report.curves}
    return [(topics[metric], figures[metric]) for metric in _that_matter(figures)]


def other_curves_by_topic(report: ReportData) -> dict[str, list[Figure]]:
    """All other learning curves by topic, in the order in which topics first occur."""
    figures = _by_metric(report)
    main_metrics = _that_matter(figures)
    topics: dict[str, dict[str, None]] = {}
    for curve in report.curves:
        if curve.metric not in main_metrics:
            topics.setdefault(curve.topic, {})[curve.metric] = None
    return {topic: [figures[metric] for metric in metrics] for topic, metrics in topics.items()}


def _by_metric(report: ReportData) -> dict[str, Figure]:
    metrics = dict.fromkeys(curve.metric for curve in report.curves)
    return {metric: _learning_curve(report, metric, place) for place, metric in enumerate(metrics, 1)}


def _that_matter(metrics: Iterable[str]) -> list[str]:
    names = list(metrics)
    return [*(metric for metric in MATTER if metric in names), *(each for each in names if each not in MATTER)][
        :MOST_THAT_MATTER
    ]


def _learning_curve(report: ReportData, metric: str, place: int) -> Figure:
    curves = [curve for curve in report.curves if curve.metric == metric]
    variants = {
        name: [curve for curve in curves if curve.variant == name] for name in dict.fromkeys(c.variant for c in curves)
    }
    look, ended = styles(report), ended_seeds(report)

    def draw(legend: bool) -> Drawing:
        title = wrapped(heading(curves[0]))
        drawing, axes = _curve_axes(title.count("\n") + 1)
        for name, seeds in variants.items():
            draw_variant(axes, seeds, look[name], ended.get(name, ()))
        if not legend:
            for at in values:
                axes.axvline(at, color=GREY, linewidth=1.0, alpha=0.0, gid=f"iteration-{at}")
        axes.set_title(title)
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if len(values) == 1:  # around a single iteration the locator would put fractions of one
            axes.set_xticks(list(values))
        axes.margins(x=0.02)
        axes.ticklabel_format(axis="y", scilimits=(-3, 4))
        if curves[0].unit == SHARE:
            axes.set_ylim(-0.03, 1.03)
        if legend:
            crosses = [ended_handle()] if any(ended.get(name) for name in variants) else []
            legend_below(drawing, [*(handle(name, look[name]) for name in variants), *crosses])
        return drawing

    bands = {name: band(seeds) for name, seeds in variants.items()}
    values = _values(bands, {name: _remaining_runs(variants[name], bands[name]) for name in variants if name in ended})
    ends = []
    for name, rows in bands.items():
        end = f"{rows[-1][1]:.3g}" if rows else "without shared iterations"
        if rows and ended.get(name):
            end += f" at iteration {rows[-1][0]}, the last that all its runs have, since some were ended"
        ends.append(f"{name} {end}")
    return Figure(
        file_name("curve", place, metric),
        f"{curves[0].heading} over the iterations; at the end: {', '.join(ends)}.",
        ("metric", "variant", "seed", "iteration", "value"),
        [(metric, curve.variant, curve.seed, *point) for curve in curves for point in curve.points],
        draw,
        values,
    )


def ended_seeds(report: ReportData) -> dict[str, set[int]]:
    """By variant, the seeds of its runs that were ended early; variants without any are left out."""
    seeds: dict[str, set[int]] = {}
    for run in [] if report.outcomes is None else report.outcomes.ended:
        seeds.setdefault(run.variant, set()).add(run.seed)
    return seeds


def ended_handle() -> Line2D:
    """The legend's entry for the cross at which the curve of an ended run ends."""
    return Line2D([], [], linestyle="", marker="x", color=GREY, markersize=6, markeredgewidth=1.6, label="ended")


def _values(
    bands: Mapping[str, Sequence[tuple[int, float, float, float]]], later: Mapping[str, Mapping[int, Sequence[float]]]
) -> dict[int, str]:
    """What each variant has at each iteration, of at most `MOST_VALUES` iterations: the mean, and the seeds' range.

    `later` has, of variants with runs that were ended, what the other runs have after that, by iteration.
    """
    texts: dict[int, list[str]] = {}
    for name, rows in bands.items():
        for at, mean, low, high in rows:
            spread = f" ({low:.3g} to {high:.3g})" if low < high else ""
            texts.setdefault(at, []).append(f"{name} {mean:.3g}{spread}")
    for name, by_iteration in later.items():
        for at, values in by_iteration.items():
            runs = f"{len(values)} {'run' if len(values) == 1 else 'runs'} that went on"
            texts.setdefault(at, []).append(f"{name} {min(values):.3g} to {max(values):.3g} in the {runs}")
    every = -(-len(texts) // MOST_VALUES) or 1
    return {at: ", ".join(texts[at]) for at in sorted(texts)[::every]}


def _remaining_runs(seeds: Sequence[Curve], rows: Sequence[tuple[int, float, float, float]]) -> dict[int, list[float]]:
    """By iteration, the values of the runs that went on after the last iteration that all runs of a variant share."""
    last_shared, later = rows[-1][0] if rows else -1, dict[int, list[float]]()
    for curve in seeds:
        for at, value in curve.points:
            if at > last_shared:
                later.setdefault(at, []).append(value)
    return later


def band(curves: Sequence[Curve]) -> list[tuple[int, float, float, float]]:
    """(iteration, mean, lowest, highest) over the seeds of one variant, at iterations that all seeds have."""
    values = [dict(curve.points) for curve in curves]
    iterations = sorted(set.intersection(*(set(points) for points in values))) if values else []
    rows = [(iteration, [points[iteration] for points in values]) for iteration in iterations]
    return [(iteration, sum(numbers) / len(numbers), min(numbers), max(numbers)) for iteration, numbers in rows]


def draw_variant(axes: Axes, seeds: Sequence[Curve], style: LineStyle, ended: Collection[int] = ()) -> None:
    """Draw the curves of one variant: the mean and, with several seeds, a band from lowest to highest.

    `ended` are the seeds whose runs were ended early: their curves end with a cross, and what goes on is drawn by run.
    """
    rows = band(seeds)
    draw_band(axes, rows, style)
    last_shared = rows[-1][0] if rows else 0
    for curve in seeds if ended else ():
        later = [point for point in curve.points if point[0] >= last_shared]
        if len(later) > 1:
            axes.plot(*zip(*later, strict=True), color=style.colour, dashes=style.dashes, linewidth=0.7)
        if curve.seed in ended and curve.points:
            axes.plot(*curve.points[-1], marker="x", color=style.colour, markersize=6, markeredgewidth=1.6)


def _curve_axes(lines: int) -> tuple[Drawing, Axes]:
    """A drawing and axes for a curve, below a title of `lines` lines.

    The position of the axes is fixed: there are many such figures, and a layout engine would take most of the time.
    """
    width, height = CURVE_INCHES
    drawing = Drawing(figsize=CURVE_INCHES)
    # The top margin (inches, like the others) also leaves room for an exponent that the axis' numbers share.
    left, right, bottom, top = 0.55, 0.1, 0.5, 0.32 + 0.16 * lines
    place = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    axes = drawing.add_axes(place)
    axes.set_axisbelow(True)
    return drawing, axes


def cost_figures(report: ReportData) -> dict[str, Figure]:
    """By axis, the learning curves against what was spent on it; empty where costs are not known."""
    if report.costs is None:
        return {}
    costs, look = report.costs, styles(report)
    return {each.budget: _cost_figure(costs, each.budget, place, look) for place, each in enumerate(costs.at_equal, 1)}


def _cost_figure(costs: Costs, axis: str, place: int, look: dict[str, LineStyle]) -> Figure:
    unit = axis.replace("_", " ")
    curves = [curve for curve in costs.curves if curve.axis == axis]
    bands = {
        name: cost_band([curve for curve in curves if curve.variant == name])
        for name in dict.fromkeys(curve.variant for curve in curves)
    }
    budget = costs.at_budget if costs.at_budget is not None and costs.at_budget.axis == axis else None

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(4.8, 2.7)
        for name, rows in bands.items():
            draw_band(axes, rows, look[name])
        if budget is not None:
            axes.axvline(budget.amount, color=GREY, dashes=(5, 3), linewidth=1.1, zorder=1)
        axes.set_title(wrapped(f"{costs.metric}, sampled"))
        axes.set_xlabel(unit)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.15g}")
        axes.margins(x=0.02)
        axes.set_xlim(left=0)
        if costs.unit == SHARE:
            axes.set_ylim(-0.03, 1.03)
        if legend:
            legend_below(drawing, [handle(name, look[name]) for name in bands])
        return drawing

    ends = ", ".join(f"{name} {rows[-1][1]:.3g} at {rows[-1][0]:,.0f}" for name, rows in bands.items())
    return Figure(
        file_name("cost", place, axis),
        f"{costs.metric} on the validation task set against {unit}; at the end: {ends}.",
        ("axis", "variant", "seed", "spent", "value"),
        [(axis, curve.variant, curve.seed, *point) for curve in curves for point in curve.points],
        draw,
    )


def cost_band(curves: Sequence[CostCurve]) -> list[tuple[float, float, float, float]]:
    """(spent, mean, lowest, highest) over the seeds of one variant, wherever one was evaluated and all still ran."""
    shortest = min(curve.points[-1][0] for curve in curves)
    places = sorted({spent for curve in curves for spent, _ in curve.points if spent <= shortest} | {shortest})
    rows = [(spent, [interpolated(curve.points, spent) for curve in curves]) for spent in places]
    return [(spent, sum(values) / len(values), min(values), max(values)) for spent, values in rows]
