"""Learning at an equal cost: for each axis, the mean and the range over the seeds of every variant against what was
spent. Between evaluations a run is on the straight line, and a variant's mean goes as far as each of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing
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
from turnwise.results.report_data import SHARE, CostCurve, Costs, ReportData
from turnwise.statistics.curves import interpolated


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
        name: band([curve for curve in curves if curve.variant == name])
        for name in dict.fromkeys(curve.variant for curve in curves)
    }
    written = costs.at_budget if costs.at_budget is not None and costs.at_budget.axis == axis else None

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(4.8, 2.7)
        for name, rows in bands.items():
            draw_band(axes, rows, look[name])
        if written is not None:
            axes.axvline(written.amount, color=GREY, dashes=(5, 3), linewidth=1.1, zorder=1)
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


def band(curves: Sequence[CostCurve]) -> list[tuple[float, float, float, float]]:
    """(spent, mean, lowest, highest) over the seeds of one variant, wherever one was evaluated and all still ran."""
    shortest = min(curve.points[-1][0] for curve in curves)
    places = sorted({spent for curve in curves for spent, _ in curve.points if spent <= shortest} | {shortest})
    rows = [(spent, [interpolated(curve.points, spent) for curve in curves]) for spent in places]
    return [(spent, sum(values) / len(values), min(values), max(values)) for spent, values in rows]
