"""The report's figures, drawn by matplotlib: the same data gives the same bytes.

Every figure is a `Figure` (not matplotlib's): a name, a description, its data as rows, and a function that draws it.
The page shows the drawing as SVG without legend; the report's folder has it as PNG with legend, and the data as CSV.

Variants differ in colour, dashes and marker, so a figure can be read without colour vision or in print.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from turnwise.reporting.data.report_data import SHARE, Curve, ReportColumn, Story
from turnwise.reporting.formatting import duration, heading
from turnwise.statistics import Interval

# Okabe and Ito's palette for all kinds of colour vision, without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.5), (6, 2, 1.2, 2), (9, 3))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MARKER_SHAPES = {
    "o": "M22 3a4 4 0 1 0 .01 0z",
    "s": "M18 3h8v8h-8z",
    "^": "M22 2l5 9h-10z",
    "D": "M22 2l5 5l-5 5l-5 -5z",
    "v": "M22 12l5 -9h-10z",
    "P": "M20.5 2h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "X": "M18 5l2 -2l2 2l2 -2l2 2l-2 2l2 2l-2 2l-2 -2l-2 2l-2 -2l2 -2z",
}
"""The markers as SVG paths, for the page's legend: 44 by 14 pixels, centre (22, 7)."""
CURVE_INCHES = (3.4, 2.45)
LEGEND_ROW_INCHES = 0.19
REFERENCE_DASHES: tuple[tuple[float, ...], ...] = ((5, 3), (1.2, 2), (7, 2, 1.2, 2))
INK, GREY, PALE = "#22262b", "#6a7178", "#dfe3e6"

SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlepad": 9,
    "axes.labelcolor": GREY,
    "axes.unicode_minus": True,
    # Names may contain a dollar sign, which must not start a formula.
    "text.parse_math": False,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "turnwise",
    "figure.dpi": 72,
}


@dataclass(frozen=True)
class Figure:
    """One figure: its name, description, data, and a function that draws it."""

    name: str
    """The name of its files, without suffix."""
    description: str
    """Alternative text: what the figure shows, for readers who cannot see it."""
    header: tuple[str, ...]
    data: list[tuple[str | int | float | None, ...]]
    """Rows under `header`."""
    draw: Callable[[bool], Drawing]
    """Draws the figure; the argument says whether with a legend."""

    def svg(self) -> str:
        """The figure as an SVG element without legend; ids are prefixed with its name, so a page can hold several."""
        buffer = io.StringIO()
        with matplotlib.rc_context(SETTINGS):
            no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            self.draw(False).savefig(buffer, format="svg", metadata=no_metadata, transparent=True)
        text = buffer.getvalue()
        text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        return re.sub(r"\n\s*", "\n", text).strip()

    def png(self) -> bytes:
        """The figure as a PNG file, with legend."""
        buffer = io.BytesIO()
        with matplotlib.rc_context(SETTINGS):
            self.draw(True).savefig(buffer, format="png", dpi=200, metadata={"Software": None}, facecolor="white")
        return buffer.getvalue()


@dataclass(frozen=True)
class LineStyle:
    """The line style of one variant, the same everywhere in a report."""

    colour: str
    dashes: tuple[float, ...]
    marker: str


def styles(story: Story) -> dict[str, LineStyle]:
    """The style of every variant, assigned in the order of the table's rows, then of the curves."""
    names = dict.fromkeys([row.name for row in story.rows_of("variant")] + [curve.variant for curve in story.curves])
    return {
        name: LineStyle(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(names)
    }


def reference_dashes(story: Story) -> dict[str, tuple[float, ...]]:
    """The dashes of each baseline policy's reference line."""
    players = story.rows_of("player")
    return {row.name: REFERENCE_DASHES[place % len(REFERENCE_DASHES)] for place, row in enumerate(players)}


def learning_curves(story: Story) -> list[Figure]:
    """One figure per metric, in the order in which metrics first occur in the curves."""
    metrics = dict.fromkeys(curve.metric for curve in story.curves)
    return [_learning_curve(story, metric, place) for place, metric in enumerate(metrics, 1)]


def comparisons(story: Story) -> list[Figure]:
    """One dot plot per column with values: variants and warm start with intervals, baselines as reference lines."""
    valued = [column for column in story.columns if any(row.cells.get(column.key) for row in story.rows)]
    return [_comparison(story, column, place) for place, column in enumerate(valued, 1)]


def time_account(story: Story) -> Figure:
    """A bar chart of the time account: seconds per stage."""
    account = story.account()
    total = sum(seconds for _, seconds in account)
    told = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in account)

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(7.2, 0.28 * len(account) + 0.3)
        places = range(len(account))
        axes.barh(places, [seconds for _, seconds in account], height=0.62, color=COLOURS[0])
        for place, (_, seconds) in enumerate(account):
            share = 100 * seconds / total if total else 0.0
            label = f"{duration(seconds)} · {share:.0f} %"
            axes.annotate(label, (seconds, place), (5, 0), textcoords="offset points", va="center", color=INK)
        axes.set_yticks(places, [stage for stage, _ in account], color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.xaxis.set_visible(False)
        axes.grid(False)
        axes.spines[["bottom", "left"]].set_visible(False)
        return drawing

    return Figure("time-account", f"Seconds by stage: {told}.", ("stage", "seconds"), list(account), draw)


def band(curves: Sequence[Curve]) -> list[tuple[int, float, float, float]]:
    """(iteration, mean, lowest, highest) over the seeds of one variant, at iterations that all seeds have."""
    values = [dict(curve.points) for curve in curves]
    shared = sorted(set.intersection(*(set(points) for points in values))) if values else []
    rows = [(iteration, [points[iteration] for points in values]) for iteration in shared]
    return [(iteration, sum(found) / len(found), min(found), max(found)) for iteration, found in rows]


def _learning_curve(story: Story, metric: str, place: int) -> Figure:
    curves = [curve for curve in story.curves if curve.metric == metric]
    variants = {
        name: [curve for curve in curves if curve.variant == name] for name in dict.fromkeys(c.variant for c in curves)
    }
    look = styles(story)

    def draw(legend: bool) -> Drawing:
        title = wrapped(heading(curves[0]))
        drawing, axes = _curve_axes(title.count("\n") + 1)
        for name, seeds in variants.items():
            draw_variant(axes, seeds, look[name])
        axes.set_title(title)
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.margins(x=0.02)
        axes.ticklabel_format(axis="y", scilimits=(-3, 4))
        if curves[0].unit == SHARE:
            axes.set_ylim(-0.03, 1.03)
        if legend:
            legend_below(drawing, [handle(name, look[name]) for name in variants])
        return drawing

    ends = [f"{name} {_last_mean(seeds)}" for name, seeds in variants.items()]
    return Figure(
        _file_name("curve", place, metric),
        f"{curves[0].heading} over the iterations; at the end: {', '.join(ends)}.",
        ("metric", "variant", "seed", "iteration", "value"),
        [(metric, curve.variant, curve.seed, *point) for curve in curves for point in curve.points],
        draw,
    )


def _last_mean(seeds: Sequence[Curve]) -> str:
    rows = band(seeds)
    return f"{rows[-1][1]:.3g}" if rows else "without shared iterations"


def draw_variant(axes: Axes, seeds: Sequence[Curve], style: LineStyle) -> None:
    """Draw the curves of one variant: the mean and, with several seeds, a band from lowest to highest."""
    rows = band(seeds)
    iterations = [row[0] for row in rows]
    if len(seeds) > 1:
        low, high = [row[2] for row in rows], [row[3] for row in rows]
        axes.fill_between(iterations, low, high, color=style.colour, alpha=0.16, linewidth=0)
    axes.plot(
        iterations,
        [row[1] for row in rows],
        color=style.colour,
        dashes=style.dashes,
        linewidth=1.6,
        marker=style.marker,
        markersize=4,
        markevery=max(1, len(rows) // 8),
    )


def _comparison(story: Story, column: ReportColumn, place: int) -> Figure:
    cells = [(row, interval) for row in story.rows if (interval := row.cells.get(column.key)) is not None]
    measured = [(row, interval) for row, interval in cells if row.kind != "player"]
    players = [(row, interval) for row, interval in cells if row.kind == "player"]
    look, dashes = styles(story), reference_dashes(story)

    def draw(legend: bool) -> Drawing:
        drawing, axes = axes_of(3.4, 0.3 * len(measured) + 0.65)
        for row, interval in players:
            axes.axvline(interval.value, color=GREY, dashes=dashes[row.name], linewidth=1.1, zorder=1)
        for height, (row, interval) in enumerate(measured):
            _draw_interval(axes, height, interval, look.get(row.name, LineStyle(GREY, (), "o")))
        axes.set_title(wrapped(heading(column)))
        axes.set_yticks(range(len(measured)), [row.name for row, _ in measured], color=INK)
        axes.set_ylim(len(measured) - 0.4, -0.6)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        if column.unit == SHARE:
            largest = max(max(interval.value, interval.high or 0.0) for _, interval in cells)
            right = 1.0 if largest > 0.4 else max(1.2 * largest, 0.05)
            axes.set_xlim(-0.03 * right, 1.03 * right)
        if legend:
            legend_below(drawing, [_reference_handle(row.name, dashes[row.name]) for row, _ in players])
        return drawing

    return Figure(
        _file_name("comparison", place, column.key),
        f"{column.heading} of every variant with its interval, and of the players. {column.description}".strip(),
        ("row", "kind", "value", "low", "high", "over", "count", "level"),
        [(row.name, row.kind, *interval_data(interval)) for row, interval in [*measured, *players]],
        draw,
    )


def interval_data(interval: Interval) -> tuple[float, float | None, float | None, str, int, float]:
    """An interval as the fields of a CSV row: value, low, high, over, count, level."""
    return (interval.value, interval.low, interval.high, interval.over, interval.count, interval.level)


def _draw_interval(axes: Axes, height: int, interval: Interval, style: LineStyle) -> None:
    if interval.low is not None and interval.high is not None:
        axes.plot([interval.low, interval.high], [height, height], color=style.colour, linewidth=2.2, alpha=0.55)
    # The values of the single seeds as strokes below, so that an interval over only two seeds shows as such.
    if len(interval.sample) > 1:
        below = [height + 0.3] * len(interval.sample)
        axes.plot(interval.sample, below, "|", color=style.colour, markersize=5, markeredgewidth=1)
    axes.plot([interval.value], [height], marker=style.marker, color=style.colour, markersize=6.5)


def axes_of(width: float, height: float) -> tuple[Drawing, Axes]:
    """An empty drawing and its axes; `width` and `height` in inches."""
    drawing = Drawing(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.05))
    axes = drawing.add_subplot()
    axes.set_axisbelow(True)
    return drawing, axes


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


def handle(name: str, style: LineStyle) -> Line2D:
    """The legend entry of a variant."""
    return Line2D(
        [], [], color=style.colour, dashes=style.dashes, marker=style.marker, markersize=4, linewidth=1.6, label=name
    )


def _reference_handle(name: str, dashes: tuple[float, ...]) -> Line2D:
    return Line2D([], [], color=GREY, dashes=dashes, linewidth=1.1, label=name)


def legend_below(drawing: Drawing, handles: Sequence[Line2D]) -> None:
    """Add a legend below the axes, in as many columns as fit (at most 4), and make the drawing taller to hold it.

    Without handles nothing happens.
    """
    if not handles:
        return
    width, height = drawing.get_size_inches()
    columns = max(1, min(4, int(width / (0.55 + 0.08 * max(len(str(each.get_label())) for each in handles)))))
    longer = height + LEGEND_ROW_INCHES * (-(-len(handles) // columns) + 0.5)
    placed = drawing.get_layout_engine() is None
    if placed:  # positions are fractions of the drawing, which grows at the bottom: keep the axes' size in inches
        for axes in drawing.axes:
            box = axes.get_position()
            bottom = longer - height * (1 - box.y0)
            axes.set_position((box.x0, bottom / longer, box.width, box.height * height / longer))
    drawing.set_size_inches(width, longer)
    drawing.legend(handles=handles, loc="lower center" if placed else "outside lower center", ncols=columns)


def wrapped(title: str) -> str:
    """A title wrapped into lines of at most 36 characters, which fit above one set of axes."""
    return "\n".join(textwrap.wrap(title, 36))


def _file_name(kind: str, place: int, name: str) -> str:
    # The number keeps names distinct that differ only in characters that are replaced here.
    return f"{kind}-{place:02d}-{re.sub(r'[^a-z0-9_]+', '-', name.lower()).strip('-')}"
