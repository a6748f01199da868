"""What every figure of a report is drawn with: colours, line styles, axes, legends, and the class `Figure`.

A `Figure` (not matplotlib's) is a name, a description, its data as rows, and a function that draws it. The page shows
the drawing as SVG without legend; the report's folder has it as PNG with legend, and the data as CSV. The same data
gives the same bytes. Variants differ in colour, dashes and marker, so a figure can be read without colour vision or in
print.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from turnwise.results.report_data import ReportData

# Okabe and Ito's palette for all kinds of colour vision, without its yellow, which is too light for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.5), (6, 2, 1.2, 2), (9, 3))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEGEND_ROW_INCHES = 0.19
NAME_CHARACTERS = 30
"""Of a line of a name; longer names are wrapped. Three lines of them leave half of the narrowest figure to its axes."""
NAME_LINE_INCHES = 0.15
EQUAL_DIGITS = 9
"""Differences of equal values may differ in the last digits."""
STROKE_POINTS = 2.2
"""From one stroke to the next where values are equal."""
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
    values: Mapping[int, str] = field(default_factory=dict)
    """What a page says of each iteration that can be chosen; the SVG has a line for it, with the id `iteration-N`."""

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

    def _repr_png_(self) -> bytes:
        """What a notebook shows: the drawing with its legend."""
        return self.png()


@dataclass(frozen=True)
class LineStyle:
    """The line style of one variant, the same everywhere in a report."""

    colour: str
    dashes: tuple[float, ...]
    marker: str


def styles(report: ReportData) -> dict[str, LineStyle]:
    """The style of every variant, assigned in the order of the table's rows, then of the curves."""
    return styles_of([row.name for row in report.rows_of("variant")] + [curve.variant for curve in report.curves])


def styles_of(names: Sequence[str]) -> dict[str, LineStyle]:
    """The style of each name, assigned in their order."""
    return {
        name: LineStyle(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(dict.fromkeys(names))
    }


def axes_of(width: float, height: float) -> tuple[Drawing, Axes]:
    """An empty drawing and its axes; `width` and `height` in inches."""
    drawing = Drawing(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.05))
    axes = drawing.add_subplot()
    axes.set_axisbelow(True)
    return drawing, axes


def draw_band(axes: Axes, rows: Sequence[tuple[float, float, float, float]], style: LineStyle) -> None:
    """Draw (place, mean, lowest, highest) of one variant: a line, and a band where the seeds differ."""
    places, means, low, high = ([row[column] for row in rows] for column in range(4))
    if low != high:
        axes.fill_between(places, low, high, color=style.colour, alpha=0.16, linewidth=0)
    axes.plot(
        places,
        means,
        color=style.colour,
        dashes=style.dashes,
        linewidth=1.6,
        marker=style.marker,
        markersize=4,
        markevery=max(1, len(rows) // 8),
    )


def draw_strokes(axes: Axes, values: Sequence[float], height: float, colour: str, size: float) -> None:
    """Draw a stroke of `size` points for each value; strokes of equal values stand side by side, so each is seen."""
    for value, times in Counter(round(value, EQUAL_DIGITS) for value in values).items():
        for place in range(times):
            inches = STROKE_POINTS * (place - (times - 1) / 2) / 72
            transform = axes.transData + ScaledTranslation(inches, 0, axes.figure.dpi_scale_trans)
            axes.plot([value], [height], "|", color=colour, markersize=size, markeredgewidth=1.1, transform=transform)


def handle(name: str, style: LineStyle) -> Line2D:
    """The legend entry of a variant."""
    return Line2D(
        [],
        [],
        color=style.colour,
        dashes=style.dashes,
        marker=style.marker,
        markersize=4,
        linewidth=1.6,
        label=name_lines(name),
    )


def legend_below(drawing: Drawing, handles: Sequence[Line2D]) -> None:
    """Add a legend below the axes, in as many columns as fit (at most 4), and make the drawing taller to hold it.

    Without handles nothing happens.
    """
    if not handles:
        return
    width, height = drawing.get_size_inches()
    labels = [str(each.get_label()).split("\n") for each in handles]
    columns = max(1, min(4, int(width / (0.55 + 0.08 * max(len(line) for lines in labels for line in lines)))))
    rows = -(-len(handles) // columns)
    further = sum(sorted((len(lines) - 1 for lines in labels), reverse=True)[:rows])
    longer = height + LEGEND_ROW_INCHES * (rows + 0.5) + NAME_LINE_INCHES * further
    is_fixed = drawing.get_layout_engine() is None
    if is_fixed:  # positions are fractions of the drawing, which grows at the bottom: keep the axes' size in inches
        for axes in drawing.axes:
            box = axes.get_position()
            bottom = longer - height * (1 - box.y0)
            axes.set_position((box.x0, bottom / longer, box.width, box.height * height / longer))
    drawing.set_size_inches(width, longer)
    drawing.legend(handles=handles, loc="lower center" if is_fixed else "outside lower center", ncols=columns)


def name_lines(name: str) -> str:
    """A name in lines of at most `NAME_CHARACTERS`, broken after a space or a hyphen where there is one."""
    return "\n".join(textwrap.wrap(name, NAME_CHARACTERS)) or name


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the places 0, 1, ... of the vertical axis with names, the first on top."""
    axes.set_yticks(range(len(names)), [name_lines(name) for name in names], color=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)


def row_inches(names: Sequence[str]) -> float:
    """The height of a row that has one of these names before it."""
    return max([0.3, *(NAME_LINE_INCHES * (name_lines(name).count("\n") + 1) for name in names)])


def wrapped(title: str) -> str:
    """A title wrapped into lines of at most 36 characters, which fit above one set of axes."""
    return "\n".join(textwrap.wrap(title, 36))


def file_name(kind: str, place: int, name: str) -> str:
    """The name of a figure's files: its kind, its number, and what it shows in plain letters."""
    # The number keeps names distinct that differ only in characters that are replaced here.
    return f"{kind}-{place:02d}-{re.sub(r'[^a-z0-9_]+', '-', name.lower()).strip('-')}"
