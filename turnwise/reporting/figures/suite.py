"""The figure of a suite: the interquartile mean of every rule with its interval, above its performance profile."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine

from turnwise.reporting.figures.drawing import COLOURS, DASHES, INK, MARKERS, Figure, LineStyle, handle, legend_below
from turnwise.statistics.suite import Suite


def suite_styles(rules: Sequence[str]) -> dict[str, LineStyle]:
    """The style of every rule, in their order."""
    return {
        name: LineStyle(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(rules)
    }


def suite_figure(suite: Suite) -> Figure:
    """Interquartile means above, performance profiles below."""
    look = suite_styles([rule.name for rule in suite.rules])

    def draw(legend: bool) -> Drawing:
        above = 0.3 * len(suite.rules) + 0.9
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
        means.set_yticks(range(len(suite.rules)), [rule.name for rule in suite.rules], color=INK)
        means.set_ylim(len(suite.rules) - 0.4, -0.6)
        means.grid(False, axis="y")
        means.spines["left"].set_visible(False)
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
