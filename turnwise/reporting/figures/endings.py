"""The figure of endings: stacked shares of how training episodes ended, over the iterations, for each variant.

Endings differ in both colour and hatching, so they can be distinguished without colour vision or in print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from turnwise.reporting.figures.drawing import Figure
from turnwise.reporting.formatting import ENDINGS, ending
from turnwise.results.report_data import Endings, ReportData

LOOKS = {
    "success": ("#0072B2", ""),
    "failure": ("#E69F00", "///"),
    "turn_limit": ("#56B4E9", "..."),
    "action_limit": ("#009E73", "\\\\\\"),
    "token_budget": ("#CC79A7", "xxx"),
    "invalid_limit": ("#D55E00", "+++"),
    "world_lost": ("#000000", ""),
}
"""Colour and hatching of each ending; one that is not here is grey."""


@dataclass(frozen=True)
class EndingLook:
    """How one ending is drawn and named in the legend."""

    text: str
    colour: str
    hatch: str
    """matplotlib's code of the hatching; empty for none."""


def looks(variants: Sequence[Endings]) -> dict[str, EndingLook]:
    """The look of each ending that occurs in any variant: known ones in the order of `ENDINGS`, then others by name."""
    occurring = {name for endings in variants for name in endings.shares}
    names = [name for name in ENDINGS if name in occurring] + sorted(occurring - set(ENDINGS))
    return {name: EndingLook(ending(name), *LOOKS.get(name, ("#9aa1a8", "--"))) for name in names}


def variants_with_endings(report: ReportData) -> list[Endings]:
    """The endings of the variants that have any."""
    return [endings for endings in report.endings if endings.shares]


def endings_figure(variants: Sequence[Endings], name: str = "endings") -> Figure:
    """One stacked plot per variant, in a grid of up to three columns."""
    ending_looks = looks(variants)
    columns = min(3, len(variants))
    rows = -(-len(variants) // columns)

    def draw(legend: bool) -> Drawing:
        drawing = Drawing(figsize=(3.4 * columns, 2.2 * rows), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.05))
        grid = drawing.subplots(rows, columns, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place < len(variants):
                _stack(axes, variants[place], ending_looks)
            else:
                axes.set_visible(False)
        if legend:
            patches = [
                Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", label=look.text)
                for look in ending_looks.values()
            ]
            for patch in patches:
                patch.set_linewidth(0.3)
            drawing.legend(handles=patches, loc="outside lower center", ncols=min(3, len(patches)))
        return drawing

    lasts = {
        endings.variant: [f"{ending(name)} {shares[-1][1]:.2f}" for name, shares in endings.shares.items()]
        for endings in variants
    }
    ends = "; ".join(f"{variant}: {', '.join(last)}" for variant, last in lasts.items())
    data: list[tuple[str | int | float | None, ...]] = [
        (endings.variant, each, number, share)
        for endings in variants
        for each in ending_looks
        for number, share in endings.shares.get(each, [])
    ]
    return Figure(
        name,
        f"How training episodes ended, over the iterations; at the end: {ends}.",
        ("variant", "ending", "iteration", "share"),
        data,
        draw,
    )


def _stack(axes: Axes, endings: Endings, ending_looks: dict[str, EndingLook]) -> None:
    present = [name for name in ending_looks if name in endings.shares]
    axes.set_title(endings.variant)
    if not present:
        return
    numbers = [number for number, _ in endings.shares[present[0]]]
    # Steps of width 1 also show a run of a single iteration, where an area plot would have no width.
    edges = [numbers[0] - 0.5, *(number + 0.5 for number in numbers)]
    below = [0.0] * len(numbers)
    for name in present:
        above = [base + share for base, (_, share) in zip(below, endings.shares[name], strict=True)]
        look = ending_looks[name]
        axes.stairs(
            above, edges, baseline=below, fill=True, facecolor=look.colour, hatch=look.hatch, edgecolor="white", lw=0.3
        )
        below = above
    axes.set_ylim(0, 1)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(False)
