"""Preparation, and evaluation of what reinforcement starts from."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import flow
from rich.console import Console

from flows.plan import plan_preparation
from flows.prepare import evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.runtime.flow_runs import untagged_tasks
from turnwise.experiment import Experiment
from turnwise.results.cells import WARM_START
from turnwise.store import default_store
from turnwise.training_runs.state import Prepared


@flow(
    name="preparation", flow_run_name="prepare {experiment.world.name}", validate_parameters=False, persist_result=False
)
@untagged_tasks
def preparation(experiment: Experiment, quiet: bool = False) -> Prepared:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment."""
    with plan_preparation(experiment).display(Console(quiet=quiet)).showing():
        return prepare_policy(experiment, prepare_materials(experiment))


@flow(
    name="evaluation", flow_run_name="evaluate {experiment.world.name}", validate_parameters=False, persist_result=False
)
@untagged_tasks
def evaluation(experiment: Experiment, quiet: bool = False) -> dict[str, dict[str, float]]:
    """Evaluate the baseline policies and the warm start on the test task set: their metrics, by name."""
    with plan_preparation(experiment, evaluated="test").display(Console(quiet=quiet)).showing():
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        evaluations = {
            **evaluate_baselines(experiment, prepared),
            WARM_START: evaluate_warm_start(experiment, prepared),
        }
    return {name: default_store().metrics(reference) for name, reference in evaluations.items()}


@flow(
    name="warm-starts",
    flow_run_name="warm starts in {starts[0].world.name}",
    validate_parameters=False,
    persist_result=False,
)
@untagged_tasks
def warm_starts(starts: Sequence[Experiment], quiet: bool = False) -> list[dict[str, float]]:
    """Evaluate the warm start of each of these on the validation task set: their metrics."""
    evaluations = []
    for experiment in starts:
        with plan_preparation(experiment, evaluated="validation").display(Console(quiet=quiet)).showing():
            prepared = prepare_policy(experiment, prepare_materials(experiment))
            evaluations.append(evaluate_warm_start(experiment, prepared, split="validation"))
    return [default_store().metrics(reference) for reference in evaluations]
