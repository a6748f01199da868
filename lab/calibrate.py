"""Calibrate: finds alarm rules that separate runs that collapse from runs that do not, in time."""

from __future__ import annotations

import io
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from prefect import flow
from rich.console import Console

from flows.plan import plan_runs
from flows.prepare import prepare_materials, prepare_policy
from flows.runtime.flow_runs import ready_for_prefect, run_flow, untagged_tasks
from flows.train import train
from lab.calibration import MonitoredRun, calibrate
from lab.calibration_page import FIGURE, Calibration, Cost, data, draw, page
from turnwise.config.monitoring import AlarmRule
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
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
                (choosing if run.seed in first_half else trying).append(as_monitored(run))
    return Calibration(choosing, trying, calibrate(choosing, trying), defaults, cost_of(runs))


def all_runs(experiment: Experiment) -> list[Run]:
    """Run every variant with every seed."""
    prepared = prepare_policy(experiment, prepare_materials(experiment))
    return [
        train(experiment.variant(variant), prepared, variant, seed)
        for seed in experiment.ablation.all_seeds
        for variant in experiment.ablation.variants
    ]


def as_monitored(run: Run) -> MonitoredRun:
    """A run's monitors, over all iterations."""
    recorded = [default_store().metrics(iteration.health) for iteration in run.iterations]
    prefix = "monitor/"
    monitors = [
        {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
        for metrics in recorded
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
