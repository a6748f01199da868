"""The figure of endings: stacked shares of how training episodes ended, over the iterations, for each variant.

Endings differ in both colour and hatching, so they can be told apart without colour vision or in print.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from turnwise.reporting.data.history import Endings
from turnwise.reporting.figures.comparison import Figure
from turnwise.reporting.html.samples import ENDINGS

LOOKS = {
    "success": ("#0072B2", ""),
    "failure": ("#E69F00", "///"),
    "turn_limit": ("#56B4E9", "..."),
    "action_limit": ("#009E73", "\\\\\\"),
    "token_budget": ("#CC79A7", "xxx"),
    "invalid_limit": ("#D55E00", "+++"),
    "world_lost": ("#000000", ""),
}
"""Colour and hatching of each ending."""


def look(ending: str) -> tuple[str, str]:
    """Colour and hatching of an ending; an unknown one is grey."""
    return LOOKS.get(ending, ("#9aa1a8", "--"))


def endings_in(told: Sequence[Endings]) -> list[str]:
    """The endings that occur in any variant: known ones in the order of `ENDINGS`, then others by name."""
    found = {name for endings in told for name in endings.shares}
    return [name for name in ENDINGS if name in found] + sorted(found - set(ENDINGS))


def endings_figure(told: Sequence[Endings]) -> Figure:
    """One stacked plot per variant, in a grid of up to three columns."""
    names = endings_in(told)
    columns = min(3, len(told))
    rows = -(-len(told) // columns)

    def draw(legend: bool) -> Drawing:
        drawing = Drawing(figsize=(3.4 * columns, 2.2 * rows), layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.05))
        grid = drawing.subplots(rows, columns, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place < len(told):
                _stack(axes, told[place], names)
            else:
                axes.set_visible(False)
        if legend:
            patches = [_patch(name) for name in names]
            drawing.legend(handles=patches, loc="outside lower center", ncols=min(3, len(patches)))
        return drawing

    ends = "; ".join(f"{endings.variant}: {_last(endings)}" for endings in told)
    data: list[tuple[str | int | float | None, ...]] = [
        (endings.variant, name, number, share)
        for endings in told
        for name in names
        for number, share in endings.shares.get(name, [])
    ]
    return Figure(
        "endings",
        f"How training episodes ended, over the iterations; at the end: {ends}.",
        ("variant", "ending", "iteration", "share"),
        data,
        draw,
    )


def _stack(axes: Axes, endings: Endings, names: Sequence[str]) -> None:
    present = [name for name in names if name in endings.shares]
    axes.set_title(endings.variant)
    if not present:
        return
    numbers = [number for number, _ in endings.shares[present[0]]]
    # Steps of width 1 also show a run of a single iteration, where an area plot would have no width.
    edges = [numbers[0] - 0.5, *(number + 0.5 for number in numbers)]
    below = [0.0] * len(numbers)
    for name in present:
        above = [base + share for base, (_, share) in zip(below, endings.shares[name], strict=True)]
        colour, hatch = look(name)
        axes.stairs(above, edges, baseline=below, fill=True, facecolor=colour, hatch=hatch, edgecolor="white", lw=0.3)
        below = above
    axes.set_ylim(0, 1)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("iteration")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(False)


def _patch(name: str) -> Patch:
    colour, hatch = look(name)
    patch = Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=ENDINGS.get(name, name))
    patch.set_linewidth(0.3)
    return patch


def _last(endings: Endings) -> str:
    return ", ".join(f"{ENDINGS.get(name, name)} {shares[-1][1]:.2f}" for name, shares in endings.shares.items())
