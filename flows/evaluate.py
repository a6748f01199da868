"""Preparation, and evaluation of what reinforcement starts from."""

from __future__ import annotations

from prefect import flow
from rich.console import Console

from flows.needs.model_seconds import model_seconds
from flows.prepare import evaluate_baselines, evaluate_warm_start, prepare_materials, prepare_policy
from flows.run_state import Prepared
from flows.runtime.display import Display
from flows.runtime.flow_runs import untagged_tasks
from flows.runtime.work_left import stages_of_preparation, stages_of_reference_points
from turnwise.experiment import Experiment
from turnwise.results.cells import WARM_START
from turnwise.store import default_store


@flow(
    name="preparation", flow_run_name="prepare {experiment.world.name}", validate_parameters=False, persist_result=False
)
@untagged_tasks
def preparation(experiment: Experiment, quiet: bool = False) -> Prepared:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment."""
    expected = stages_of_preparation(experiment)
    with Display(Console(quiet=quiet), expected, of_model=model_seconds(experiment)).showing():
        return prepare_policy(experiment, prepare_materials(experiment))


@flow(
    name="evaluation", flow_run_name="evaluate {experiment.world.name}", validate_parameters=False, persist_result=False
)
@untagged_tasks
def evaluation(experiment: Experiment, quiet: bool = False) -> dict[str, dict[str, float]]:
    """Evaluate the baseline policies and the warm start on the test task set: their metrics, by name."""
    expected = stages_of_preparation(experiment) + stages_of_reference_points(experiment)
    with Display(Console(quiet=quiet), expected, of_model=model_seconds(experiment)).showing():
        prepared = prepare_policy(experiment, prepare_materials(experiment))
        evaluated = {
            **evaluate_baselines(experiment, prepared),
            WARM_START: evaluate_warm_start(experiment, prepared),
        }
    return {name: default_store().metrics(reference) for name, reference in evaluated.items()}
