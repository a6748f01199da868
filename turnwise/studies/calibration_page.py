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

from turnwise.config.monitoring import AlarmRule
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, PALE, SETTINGS
from turnwise.studies.calibration import ALLOWED, SHARE, SMOOTHING, AlarmScore, Calibrated, WatchedRun, judge, raised_at

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

    choosing: Sequence[WatchedRun]
    trying: Sequence[WatchedRun]
    found: Sequence[Calibrated]
    defaults: Mapping[str, AlarmRule]
    """The rules of params.yaml."""
    cost: Cost


def page(calibration: Calibration) -> str:
    """The page as Markdown."""
    return f"""# The Echo Trap: which alarms tell a collapse before it comes

Written by `turnwise calibrate` from the runs of the first table. `turnwise/health/monitors.py` says what every monitor
is, `turnwise/studies/calibration.py` how a rule is chosen.

A run has **collapsed** when its success, as the mean of {SMOOTHING} iterations, falls below {SHARE:.0%} of its best and
never comes back. A rule **detects** a collapse when it raises its alarm by then; the **lead** is the median number of
iterations before. An alarm in a run that does not collapse is a **false alarm**. Rules are chosen on one half of the
seeds, with at most {ALLOWED} false alarms there, and tried on the other half.

{_runs_table(calibration)}

## The best rule of every monitor

Best first, by the half that they were chosen on.

{_rules_table(calibration)}

## Rules together

An alarm of any of them counts.

{_together_table(calibration)}

{_words(calibration)}

![Runs of the seeds that rules were tried on: success and three monitors]({FIGURE})

Runs of the half that rules were tried on. Vermilion: runs that collapsed, with a bar at the onset. Blue: the others.
Dashed: the bound of the best rule; dots: where it raised its alarm. What is above {LARGEST:g} is drawn there.

## What it costs

{_cost_in_words(calibration.cost)}

## How far this goes

{_count(calibration)} runs on {_worlds(calibration)}: a rate that is told by so few is uncertain. Collapses that come
of another cause than these may begin otherwise. On a world of your own: `turnwise calibrate your-experiment.yaml`.
"""


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
                "chosen_on": asdict(each.chosen_on),
                "tried_on": asdict(each.tried_on),
            }
            for each in calibration.found
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
    rules = {each.monitor: each.rule for each in reversed(calibration.found)}
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


def _draw(axes: Axes, monitor: str, runs: Sequence[WatchedRun], rule: AlarmRule | None) -> None:
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


def _runs_table(calibration: Calibration) -> str:
    lines = [
        "| world | variant | seeds that choose | collapsed | seeds that try | collapsed |",
        "|---|---|---|---|---|---|",
    ]
    everything = [*calibration.choosing, *calibration.trying]
    for world, variant in dict.fromkeys((run.world, run.variant) for run in everything):
        cells = []
        for half in (calibration.choosing, calibration.trying):
            runs = [run for run in half if (run.world, run.variant) == (world, variant)]
            cells += [", ".join(str(run.seed) for run in runs), str(sum(run.onset is not None for run in runs))]
        lines.append(f"| {world} | {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


HEADER = "detected | late | false alarms | lead | detected | late | false alarms | lead |"


def _rules_table(calibration: Calibration) -> str:
    if not calibration.found:
        return "No rule detects a collapse without a false alarm."
    lines = [f"| monitor | rule | {HEADER}", "|---|---|" + "---|" * 8]
    lines += [
        f"| {each.monitor} | {in_short(each.rule)} | {_cells(each.chosen_on)} | {_cells(each.tried_on)} |"
        for each in calibration.found
    ]
    return (
        "\n".join(lines)
        + "\n\nThe first four columns are those of the half that chose, the others of the half that tried."
    )


def _together_table(calibration: Calibration) -> str:
    lines = [f"| rules | {HEADER}", "|---|" + "---|" * 8]
    for name, rules in (
        ("the default ones (params.yaml)", calibration.defaults),
        ("RAGEN-2's, as published", PUBLISHED),
    ):
        verdicts = (judge(calibration.choosing, rules), judge(calibration.trying, rules))
        lines.append(f"| {name} | {' | '.join(_cells(verdict) for verdict in verdicts)} |")
    return "\n".join(lines)


def _cost_in_words(cost: Cost) -> str:
    share = cost.monitors_milliseconds / cost.iteration_milliseconds
    return (
        f"The monitors took {cost.monitors_milliseconds:.0f} ms an iteration, {share:.1%} of the "
        f"{cost.iteration_milliseconds:,.0f} ms of sampling, credit and update, and score nothing. A probe took "
        f"{cost.probe_milliseconds:.0f} ms and scored {cost.probe_tokens:,.0f} tokens, prompts included, beside "
        f"{cost.trained_tokens:,.0f} reply tokens that an iteration trains on; it is made every few iterations. All "
        "are medians, on a machine that did other work as well."
    )


def _words(calibration: Calibration) -> str:
    verdict = judge(calibration.trying, calibration.defaults)
    lead = "" if verdict.lead is None else f", a median of {verdict.lead:g} iterations ahead"
    return (
        f"On the half that was kept aside the default rules told {verdict.in_time} of {verdict.collapses} collapses "
        f"in time{lead}, {verdict.late} too late, and raised {verdict.false_alarms} false alarms in {verdict.healthy} "
        "runs that did not collapse."
    )


def _cells(verdict: AlarmScore) -> str:
    lead = "" if verdict.lead is None else f"{verdict.lead:g}"
    detected, false_alarms = (
        f"{verdict.in_time} of {verdict.collapses}",
        f"{verdict.false_alarms} of {verdict.healthy}",
    )
    return f"{detected} | {verdict.late} | {false_alarms} | {lead}"


def in_short(rule: AlarmRule) -> str:
    """A rule as short text, e.g. `below 0.1, 10 times`."""
    bounds = [] if rule.below is None else [f"below {rule.below:g}"]
    bounds += [] if rule.above is None else [f"above {rule.above:g}"]
    times = "" if rule.patience == 1 else f", {rule.patience} times"
    return " or ".join(bounds) + times


def _count(calibration: Calibration) -> int:
    return len(calibration.choosing) + len(calibration.trying)


def _worlds(calibration: Calibration) -> str:
    return " and ".join(dict.fromkeys(run.world for run in [*calibration.choosing, *calibration.trying]))
