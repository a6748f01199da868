"""Calibrate: finds alarm rules that separate runs that collapse from runs that do not, in time.

The results are a page, a figure and plain data.
"""

from __future__ import annotations

import io
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from prefect import flow
from rich.console import Console

from flows.plan import plan_runs
from flows.prepare import prepare_materials, prepare_policy
from flows.runtime.flow_runs import ready_for_prefect, run_flow, untagged_tasks
from flows.train import train
from lab.calibration import (
    ALLOWED,
    MOST_FALSE,
    SHARE,
    SMOOTHING,
    Calibrated,
    MonitoredRun,
    calibrate,
    judge,
    raised_at,
)
from turnwise.config.monitoring import AlarmRule
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.reporting.figures.drawing import COLOURS, GREY, INK, PALE, SETTINGS
from turnwise.reporting.markdown import render
from turnwise.store import Reference, default_store
from turnwise.store.atomic_write import write_whole
from turnwise.training_runs.display import Display
from turnwise.training_runs.state import Run


def show_calibration(experiments: Sequence[Experiment], defaults: dict[str, AlarmRule], folder: Path) -> None:
    """Run the experiments, calibrate on one half of their seeds, and write page, figure and data into a folder.

    Raises ConfigurationError, before any compute, for experiments that are unsuitable for calibration.
    """
    for experiment in experiments:
        _require_sense(experiment)
    ready_for_prefect(Console())
    result = run_flow(calibration, experiments, defaults)
    write_calibration(result, folder)
    Console().print(f"{len(result.calibrated)} rules  {folder / 'echo-trap.md'}", highlight=False, soft_wrap=True)


@flow(name="calibration", flow_run_name="calibrate the alarms", validate_parameters=False, persist_result=False)
@untagged_tasks
def calibration(experiments: Sequence[Experiment], defaults: dict[str, AlarmRule]) -> Calibration:
    """Run the experiments and calibrate: rules are chosen on the first half of the seeds and tried on the second."""
    runs: list[Run] = []
    choosing: list[MonitoredRun] = []
    trying: list[MonitoredRun] = []
    planned = sum((plan_runs(experiment).kinds for experiment in experiments), Counter[str]())
    with Display(Console(), planned).showing():
        for experiment in experiments:
            first_half = experiment.ablation.all_seeds[: len(experiment.ablation.all_seeds) // 2]
            for run in all_runs(experiment):
                runs.append(run)
                (choosing if run.seed in first_half else trying).append(monitored_run(run))
    return Calibration(choosing, trying, calibrate(choosing, trying), defaults, cost_of(runs))


def all_runs(experiment: Experiment) -> list[Run]:
    """Run every variant with every seed."""
    prepared = prepare_policy(experiment, prepare_materials(experiment))
    return [
        train(experiment.variant(variant), prepared, variant, seed)
        for seed in experiment.ablation.all_seeds
        for variant in experiment.ablation.variants
    ]


def monitored_run(run: Run) -> MonitoredRun:
    """A run's monitors, over all iterations."""
    health_metrics = [default_store().metrics(iteration.health) for iteration in run.iterations]
    prefix = "monitor/"
    monitors = [
        {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
        for metrics in health_metrics
    ]
    return MonitoredRun(run.experiment.world.name, run.variant, run.seed, monitors)


def cost_of(runs: Sequence[Run]) -> Cost:
    """The median cost of monitoring these runs, per iteration and per probe, when they were computed."""
    store = default_store()
    iterations = [iteration for run in runs for iteration in run.iterations]

    def milliseconds(*references: Reference | None) -> float:
        return 1000.0 * sum(store.clock(each).get("seconds", 0.0) for each in references if each is not None)

    def median(values: Iterable[float]) -> float:
        sample = list(values)
        return statistics.median(sample) if sample else 0.0

    probes = [iteration.made["probe"] for iteration in iterations if "probe" in iteration.made]
    return Cost(
        iteration_milliseconds=median(milliseconds(each.rollout, each.credit, each.policy) for each in iterations),
        trained_tokens=median(store.metrics(each.policy).get("tokens", 0.0) for each in iterations),
        monitors_milliseconds=median(milliseconds(each.health) for each in iterations),
        probe_milliseconds=median(map(milliseconds, probes)),
        probe_tokens=median(store.metrics(probe)["scored_tokens"] for probe in probes),
    )


def write_calibration(calibration: Calibration, folder: Path) -> None:
    """Write the page, the figure and the data, each atomically."""
    figure = io.BytesIO()
    draw(calibration).savefig(figure, format="png", dpi=150, metadata={"Software": None})
    write_whole(folder / FIGURE, figure.getvalue())
    write_whole(folder / "echo-trap.md", page(calibration))
    write_whole(folder / "echo-trap.json", json.dumps(data(calibration), indent=1) + "\n")


def _require_sense(experiment: Experiment) -> None:
    """Refuse settings that would end or change a run before its collapse is seen, and fewer than two seeds."""
    for variant in experiment.ablation.variants:
        own = experiment.variant(variant)
        guards = [name for name, most in own.guards if most is not None]
        if own.alarms.response != "log" or guards:
            raise ConfigurationError(
                "a calibration must see runs to their end; found in variant "
                f"{variant!r} alarms.response: {own.alarms.response} and guards {', '.join(guards) or 'none'}: "
                "set the response to log and every guard to null",
                "TW-calibration-ends-early",
            )
    if len(experiment.ablation.all_seeds) < 2:
        raise ConfigurationError(
            "a calibration must have seeds to choose on and others to try on; "
            f"found ablation.seeds: {experiment.ablation.seeds}: give at least 2",
            "TW-too-few-seeds",
        )


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
        alarm_at = None if rule is None else raised_at(run.history, monitor, rule)
        if alarm_at is not None:
            axes.plot([alarm_at], [dict(points)[alarm_at]], "o", color=colour, markersize=5, markeredgecolor="white")
    for bound in () if rule is None else (rule.below, rule.above):
        if bound is not None:
            axes.axhline(bound, color=GREY, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="y", color=PALE)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
