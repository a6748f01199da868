"""Figures that compare: dot plots of the table, performance profiles, the time account, and the rules of a suite."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from turnwise.reporting.data.tables import interval_data
from turnwise.reporting.figures.drawing import (
    COLOURS,
    GREY,
    INK,
    Figure,
    LineStyle,
    axes_of,
    draw_strokes,
    file_name,
    handle,
    label_rows,
    legend_below,
    name_lines,
    row_inches,
    styles,
    styles_of,
    wrapped,
)
from turnwise.reporting.formatting import duration, heading
from turnwise.results.report_data import SHARE, ReportColumn, ReportData
from turnwise.statistics import Interval
from turnwise.statistics.suite import Suite

REFERENCE_DASHES: tuple[tuple[float, ...], ...] = ((5, 3), (1.2, 2), (7, 2, 1.2, 2))


def reference_dashes(report: ReportData) -> dict[str, tuple[float, ...]]:
    """The dashes of each baseline policy's reference line."""
    baselines = report.rows_of("baseline")
    return {row.name: REFERENCE_DASHES[place % len(REFERENCE_DASHES)] for place, row in enumerate(baselines)}


def comparisons(report: ReportData) -> list[Figure]:
    """One dot plot per column with values: variants and warm start with intervals, baselines as reference lines."""
    return [_comparison(report, column, place) for place, column in enumerate(_columns_with_values(report), 1)]


def answer(report: ReportData) -> Figure | None:
    """The one of `comparisons` that shows the measure which the finding is about; None where nothing is judged."""
    if report.judgement is None:
        return None
    for place, column in enumerate(_columns_with_values(report), 1):
        if column.heading == report.judgement.measure:
            return _comparison(report, column, place)
    return None


def _columns_with_values(report: ReportData) -> list[ReportColumn]:
    return [column for column in report.columns if any(row.cells.get(column.key) for row in report.rows)]


def _comparison(report: ReportData, column: ReportColumn, place: int) -> Figure:
    whole = [row for row in report.rows if row.kind != "went on"]
    cells = [(row, interval) for row in whole if (interval := row.cells.get(column.key)) is not None]
    variants = [(row, interval) for row, interval in cells if row.kind != "baseline"]
    baselines = [(row, interval) for row, interval in cells if row.kind == "baseline"]
    look, dashes = styles(report), reference_dashes(report)

    def draw(legend: bool) -> Drawing:
        names = [row.name for row, _ in variants]
        drawing, axes = axes_of(3.4, row_inches(names) * len(variants) + 0.65)
        for row, interval in baselines:
            axes.axvline(interval.value, color=GREY, dashes=dashes[row.name], linewidth=1.1, zorder=1)
        for height, (row, interval) in enumerate(variants):
            _draw_interval(axes, height, interval, look.get(row.name, LineStyle(GREY, (), "o")))
        axes.set_title(wrapped(heading(column)))
        label_rows(axes, names)
        if column.unit == SHARE:
            largest = max(max(interval.value, interval.high or 0.0) for _, interval in cells)
            right = 1.0 if largest > 0.4 else max(1.2 * largest, 0.05)
            axes.set_xlim(-0.03 * right, 1.03 * right)
        if legend:
            handles = [
                Line2D([], [], color=GREY, dashes=dashes[row.name], linewidth=1.1, label=name_lines(row.name))
                for row, _ in baselines
            ]
            legend_below(drawing, handles)
        return drawing

    return Figure(
        file_name("comparison", place, column.key),
        f"{column.heading} of every variant with its interval, and of the baselines. {column.description}".strip(),
        ("row", "kind", "value", "low", "high", "over", "count", "level"),
        [(row.name, row.kind, *interval_data(interval)) for row, interval in [*variants, *baselines]],
        draw,
    )


def _draw_interval(axes: Axes, height: int, interval: Interval, style: LineStyle) -> None:
    if interval.low is not None and interval.high is not None:
        axes.plot([interval.low, interval.high], [height, height], color=style.colour, linewidth=2.2, alpha=0.55)
    # The values of the single seeds as strokes below, so that an interval over only two seeds shows as such.
    if len(interval.sample) > 1:
        draw_strokes(axes, interval.sample, height + 0.3, style.colour, 5)
    axes.plot([interval.value], [height], marker=style.marker, color=style.colour, markersize=6.5)


def profile_figure(report: ReportData) -> Figure:
    """Performance profiles: the share of tasks and runs above each threshold; a higher curve is better.

    The report must have a judgement.
    """
    assert report.judgement is not None, "profiles are part of a judgement"
    profiles, measure = report.judgement.profiles, report.judgement.measure
    look = styles(report)

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(3.4, 2.35)
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
            legend_below(drawing, [handle(name, look[name]) for name in profiles])
        return drawing

    data: list[tuple[str | int | float | None, ...]] = [
        (name, threshold, share_above.value, share_above.low, share_above.high)
        for name, profile in profiles.items()
        for threshold, share_above in profile
    ]
    described = f"Performance profiles: the share of tasks and runs whose {measure} is above each threshold."
    return Figure("performance-profiles", described, ("variant", "threshold", "share", "low", "high"), data, draw)


def time_account(report: ReportData) -> Figure:
    """A bar chart of the time account: seconds per stage."""
    account = report.account()
    total = sum(seconds for _, seconds in account)
    parts = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in account)

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(4.8, 0.28 * len(account) + 0.3)
        places = range(len(account))
        axes.barh(places, [seconds for _, seconds in account], height=0.62, color=COLOURS[0])
        for place, (_, seconds) in enumerate(account):
            share = 100 * seconds / total if total else 0.0
            label = f"{duration(seconds)} · {share:.0f} %"
            axes.annotate(label, (seconds, place), (5, 0), textcoords="offset points", va="center", color=INK)
        axes.set_yticks(places, [stage for stage, _ in account], color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.36)
        axes.set_xlim(left=0)
        axes.xaxis.set_visible(False)
        axes.grid(False)
        axes.spines[["bottom", "left"]].set_visible(False)
        return drawing

    return Figure("time-account", f"Seconds by stage: {parts}.", ("stage", "seconds"), list(account), draw)


def suite_figure(suite: Suite) -> Figure:
    """Interquartile means above, performance profiles below."""
    look = styles_of([rule.name for rule in suite.rules])

    def draw(legend: bool) -> Drawing:
        names = [rule.name for rule in suite.rules]
        above = row_inches(names) * len(suite.rules) + 0.9
        drawing = Drawing(figsize=(4.2, above + 2.4), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.05))
        means, profiles = drawing.subplots(2, 1, height_ratios=[above, 2.4])
        for height, rule in enumerate(suite.rules):
            style, middle = look[rule.name], rule.interquartile_mean
            means.plot([middle.low, middle.high], [height, height], color=style.colour, linewidth=2.2, alpha=0.55)
            means.plot([middle.value], [height], marker=style.marker, color=style.colour, markersize=6.5)
            at = [threshold for threshold, _ in rule.profile]
            bounds = [[getattr(share, side) for _, share in rule.profile] for side in ("low", "high")]
            profiles.fill_between(at, *bounds, color=style.colour, alpha=0.13, linewidth=0)
            shares = [share.value for _, share in rule.profile]
            profiles.plot(at, shares, color=style.colour, dashes=style.dashes, linewidth=1.6)
        means.set_title("interquartile mean")
        label_rows(means, names)
        means.set_xlabel("random = 0, oracle = 1")
        profiles.set_title("share of runs with more")
        profiles.set_xlabel("normalised score")
        profiles.set_ylim(-0.03, 1.03)
        for axes in (means, profiles):
            axes.set_axisbelow(True)
        if legend:
            legend_below(drawing, [handle(name, style) for name, style in look.items()])
        return drawing

    parts = ", ".join(f"{rule.name} {rule.interquartile_mean.value:.2f}" for rule in suite.rules)
    return Figure(
        "suite",
        f"Interquartile means over {', '.join(suite.worlds)}: {parts}; and performance profiles.",
        ("rule", "threshold", "share", "low", "high"),
        [(rule.name, at, share.value, share.low, share.high) for rule in suite.rules for at, share in rule.profile],
        draw,
    )
