"""The page on baselines, `docs/baselines.md`: the recorded scores, and success rates that others have published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.reporting.baseline_table import BaselineRow
from turnwise.reporting.markdown import render
from turnwise.statistics import Interval

DEFAULT = "default"
"""The name shown for a world's default setting, whose own name is empty."""


@dataclass(frozen=True)
class KnownFigure:
    """A success rate published elsewhere, as a range; a single figure is a range of width 0."""

    world: str
    setting: str
    baseline: str
    low: float
    high: float
    source: str
    difference: str
    """Why ours may differ; shown if our interval does not overlap the range."""


def page(lines: Sequence[BaselineRow], known: Sequence[KnownFigure]) -> str:
    """The whole page as Markdown."""
    recorded = {line.key: line.score.success for line in lines}
    found = [(figure, recorded.get((figure.world, figure.setting, figure.baseline))) for figure in known]
    return render(
        "lab",
        "baselines.md.jinja",
        default=DEFAULT,
        lines=lines,
        known=[(figure, ours, verdict(ours, figure) if ours else "") for figure, ours in found],
        random_decisions={line.world: line.uniform for line in lines if line.score.baseline == "random"},
    )


def verdict(ours: Interval, figure: KnownFigure) -> str:
    """Whether our interval overlaps the published range, and if not, the possible reason."""
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if low <= figure.high and figure.low <= high:
        return "yes"
    return f"no, ours is {'higher' if low > figure.high else 'lower'}: {figure.difference}"
