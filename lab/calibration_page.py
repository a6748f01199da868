"""The results of the calibration of alarms as a page, a figure and plain data: written by `turnwise calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from lab.calibration import (
    ALLOWED,
    MOST_FALSE,
    SHARE,
    SMOOTHING,
    Calibrated,
    MonitoredRun,
    judge,
    raised_at,
)
from turnwise.config.monitoring import AlarmRule
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, PALE, SETTINGS
from turnwise.reporting.markdown import render

FIGURE = "echo-trap.png"
PANELS = ("success", "reward_deviation_of_start", "entropy_of_start", "gradient_norm_of_median")
LARGEST = 6.0
"""The figure clips monitor values at this maximum, since some have no upper bound."""
PUBLISHED = {"reward_deviation_of_start": AlarmRule(below=0.1, patience=10)}
"""RAGEN-2's rule: reward deviation below a tenth of its start, ten times in a row; published without calibration."""


@dataclass(frozen=True)
class Cost:
    """The cost of monitoring next to that of training: medians over the iterations of all runs."""

    iteration_milliseconds: float
    """Time of sampling, credit and update."""
    trained_tokens: float
    """Reply tokens that one update trains on."""
    monitors_milliseconds: float
    probe_milliseconds: float
    probe_tokens: float
    """Tokens that one probe scores, prompts included."""


@dataclass(frozen=True)
class Calibration:
    """All data of the page."""

    choosing: Sequence[MonitoredRun]
    trying: Sequence[MonitoredRun]
    calibrated: Sequence[Calibrated]
    defaults: Mapping[str, AlarmRule]
    """The rules of params.yaml."""
    cost: Cost


def page(calibration: Calibration) -> str:
    """The page as Markdown."""
    halves = (calibration.choosing, calibration.trying)
    runs = [run for half in halves for run in half]
    return render(
        "lab",
        "echo-trap.md.jinja",
        smoothing=SMOOTHING,
        share=SHARE,
        allowed=ALLOWED,
        most_false=MOST_FALSE,
        runs=[
            (
                world,
                variant,
                *([run for run in half if (run.world, run.variant) == (world, variant)] for half in halves),
            )
            for world, variant in dict.fromkeys((run.world, run.variant) for run in runs)
        ],
        calibrated=[(each, in_short(each.rule)) for each in calibration.calibrated],
        together=[
            (name, *(judge(half, rules) for half in halves))
            for name, rules in (
                ("the default ones (params.yaml)", calibration.defaults),
                ("RAGEN-2's, as published", PUBLISHED),
            )
        ],
        figure=FIGURE,
        largest=LARGEST,
        cost=calibration.cost,
        count=len(runs),
        worlds=list(dict.fromkeys(run.world for run in runs)),
    )


def in_short(rule: AlarmRule) -> str:
    """A rule as short text, e.g. `below 0.1, 10 times`."""
    bounds = [] if rule.below is None else [f"below {rule.below:g}"]
    bounds += [] if rule.above is None else [f"above {rule.above:g}"]
    times = "" if rule.patience == 1 else f", {rule.patience} times"
    return " or ".join(bounds) + times


def data(calibration: Calibration) -> dict[str, Any]:
    """The results as plain data: the runs, the rules that were chosen, and the score of each."""
    return {
        "runs": [
            {"world": run.world, "variant": run.variant, "seed": run.seed, "half": half, "onset": run.onset}
            for half, runs in (("choosing", calibration.choosing), ("trying", calibration.trying))
            for run in runs
        ],
        "rules": [
            {
                "monitor": each.monitor,
                "rule": each.rule.model_dump(exclude_none=True),
                "warning": each.warning,
                "warning_elsewhere": each.warning_elsewhere,
                "chosen_on": asdict(each.chosen_on),
                "tried_on": asdict(each.tried_on),
            }
            for each in calibration.calibrated
        ],
        "defaults": {
            "rules": {name: rule.model_dump(exclude_none=True) for name, rule in calibration.defaults.items()},
            "chosen_on": asdict(judge(calibration.choosing, calibration.defaults)),
            "tried_on": asdict(judge(calibration.trying, calibration.defaults)),
        },
    }


def draw(calibration: Calibration) -> Drawing:
    """The figure of the held-out runs: one row per world, one column per monitor."""
    worlds = list(dict.fromkeys(run.world for run in calibration.trying))
    rules = {each.monitor: each.rule for each in reversed(calibration.calibrated)}
    with matplotlib.rc_context(SETTINGS):
        drawing = Drawing(figsize=(11.5, 2.6 * len(worlds) + 0.3), layout=ConstrainedLayoutEngine(w_pad=0.08))
        grid = drawing.subplots(len(worlds), len(PANELS), squeeze=False)
        for row, world in zip(grid, worlds, strict=True):
            runs = [run for run in calibration.trying if run.world == world]
            for axes, monitor in zip(row, PANELS, strict=True):
                _draw(axes, monitor, runs, rules.get(monitor))
            row[0].set_ylabel(world, color=INK)
        for axes, monitor in zip(grid[0], PANELS, strict=True):
            axes.set_title(monitor.replace("_", " "))
        for axes in grid[-1]:
            axes.set_xlabel("iteration")
    return drawing


def _draw(axes: Axes, monitor: str, runs: Sequence[MonitoredRun], rule: AlarmRule | None) -> None:
    for run in sorted(runs, key=lambda run: run.onset is not None):
        begins = run.onset
        colour = COLOURS[0] if begins is None else COLOURS[1]
        points = [(k, min(values[monitor], LARGEST)) for k, values in enumerate(run.history, 1) if monitor in values]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.1, alpha=0.75) if points else None
        if begins is not None and monitor == "success":
            axes.plot([begins], [dict(points)[begins]], "|", color=colour, markersize=14, markeredgewidth=2)
        raised = None if rule is None else raised_at(run.history, monitor, rule)
        if raised is not None:
            axes.plot([raised], [dict(points)[raised]], "o", color=colour, markersize=5, markeredgecolor="white")
    for bound in () if rule is None else (rule.below, rule.above):
        if bound is not None:
            axes.axhline(bound, color=GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="y", color=PALE)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
