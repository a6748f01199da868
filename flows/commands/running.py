"""Runs flows and prints their results. Imports Prefect: the server's address must be in the environment before."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prefect import flow
from rich.console import Console

from flows.ablation import AblationResult, compare
from flows.prepare import evaluate_players, evaluate_warm_start, prepare_materials, prepare_policy
from flows.runtime.display import Display, expected_work
from flows.studies.credit_study import StudyRun, study_credit
from flows.studies.science import experiment_of, write_page
from turnwise.experiment import Experiment
from turnwise.reporting.terminal.comparison import print_report
from turnwise.store import default_store
from turnwise.store.paths import home
from turnwise.studies.claims import PlannedAblation
from turnwise.studies.credit_page import print_study


def show_ablation(experiment: Experiment, processes: int = 1) -> None:
    """Run an ablation as a flow, with `processes` processes sharing its runs, and print its comparison."""
    console = Console()
    began = time.monotonic()
    comparison: list[AblationResult] = []

    @flow(name="ablation", flow_run_name=experiment.ablation.name)
    def ablation() -> str:
        comparison.append(compare(experiment, console, processes))
        return comparison[0].digest

    digest = ablation()
    (result,) = comparison
    print_report(result.report, console)
    console.print()
    for name, value in (
        ("stages", f"{result.computed} computed, {result.found} found in the store"),
        ("digest", digest),
        *([("repeat", result.repeat)] if result.repeat else []),
        ("report", result.folder / "report.html"),
        ("MLflow", f"make ui   (store: {home() / 'mlflow.db'})"),
        ("took", f"{time.monotonic() - began:.0f} s"),
    ):
        console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)


def show_science(name: str, run: Sequence[str], processes: int = 1) -> None:
    """Run ablations of a page of `docs/science/`, each as a flow shared by `processes` processes; write the page."""
    console = Console()

    def run_planned(planned: PlannedAblation) -> AblationResult:
        experiment = experiment_of(planned)
        made: list[AblationResult] = []

        @flow(name="ablation", flow_run_name=experiment.ablation.name)
        def ablation() -> str:
            made.append(compare(experiment, console, processes))
            return made[0].digest

        ablation()
        return made[0]

    write_page(name, run, run_planned)


def show_preparation(experiment: Experiment) -> None:
    """Make the artifacts that every run starts from, and print their digests."""
    console = Console()

    @flow(name="prepare", flow_run_name=f"prepare {experiment.world.name}")
    def prepare() -> dict[str, str]:
        with Display(console, expected_work(experiment)).showing():
            prepared = prepare_policy(experiment, prepare_materials(experiment))
        return {name: str(reference) for name, reference in prepared.__dict__.items()}

    for name, reference in prepare().items():
        console.print(f"{name:<16}{reference}", highlight=False, soft_wrap=True)


def show_evaluation(experiment: Experiment) -> None:
    """Evaluate the baseline policies and the warm start on the test task set, and print their success."""
    console = Console()

    @flow(name="evaluate", flow_run_name=f"evaluate {experiment.world.name}")
    def evaluate() -> dict[str, dict[str, float]]:
        with Display(console, expected_work(experiment)).showing():
            prepared = prepare_policy(experiment, prepare_materials(experiment))
            evaluations = {
                **evaluate_players(experiment, prepared),
                "warm start": evaluate_warm_start(experiment, prepared),
            }
        return {name: default_store().metrics(reference) for name, reference in evaluations.items()}

    for name, metrics in evaluate().items():
        console.print(
            f"{name:<14}success {metrics['sampled/success']:.3f}  turns {metrics['sampled/turns']:.2f}", highlight=False
        )


def show_credit(experiment: Experiment, policy: str | None, tasks: int, replays: int) -> None:
    """Run the credit study, which compares every estimator with replays, and print its results."""
    console = Console()
    began = time.monotonic()
    made: list[StudyRun] = []

    @flow(name="credit", flow_run_name=f"credit {experiment.world.name}")
    def study() -> str:
        made.append(study_credit(experiment, policy, tasks, replays, console))
        return made[0].digest

    study()
    (run,) = made
    print_study(run.study, console)
    console.print()
    for name, value in (
        *run.about.items(),
        ("stages", f"{run.computed} computed, {run.found} found in the store"),
        ("page", run.folder / "README.md"),
        ("took", f"{time.monotonic() - began:.0f} s"),
    ):
        console.print(f"{name:<25}{value}", highlight=False, soft_wrap=True)
