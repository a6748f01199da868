"""Sweeps from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.runtime.flow_runs import ready_to_run, run_flow
from flows.runtime.process_settings import prepare_process
from turnwise.config.sweeps import Range, candidates
from turnwise.experiment import Experiment

if TYPE_CHECKING:
    from flows.sweep import SweepResult


def sweep(
    experiment: Experiment,
    values: Mapping[str, Sequence[Any] | Range],
    *,
    random: int | None = None,
    variant: str | None = None,
    seeds: int = 3,
    processes: int | None = None,
    quiet: bool = False,
) -> SweepResult:
    """Try values of some keys before variants are compared: on the validation task set, with seeds of their own.

    The folder `results/<name>-sweep` of the project gets `sweep.csv` and `sweep.json`, MLflow a run for each candidate
    and seed. What is computed already is found.

    Args:
        experiment: what `load` returned.
        values: by dotted key, a list of values, or a range to draw from.
        random: how many candidates are drawn; None: every combination of the values.
        variant: the variant of the experiment that the values are tried in; None: the parameters as they are.
        seeds: how many seeds each candidate gets. None of them is a seed of the experiment's own comparison.
        processes: how many processes share the runs; None: as `compute.runner` says. The results are the same.
        quiet: show no progress.

    Raises:
        ConfigurationError: the values cannot be set, or the device or the disk has too little room.
        TrainingEnded: a fault (`mismatch`, `not_finite`) has left out every run.
    """
    prepare_process()
    choices = {key: found if isinstance(found, Range) else list(found) for key, found in values.items()}
    tried = candidates(choices, random)
    ready_to_run(experiment, Console(quiet=quiet), processes)
    from flows.sweep import sweep as compare_values  # imports Prefect
    from flows.sweep import sweep_experiment

    return run_flow(compare_values, sweep_experiment(experiment, tried, variant, seeds), tried, processes, quiet)
