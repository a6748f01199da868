"""Runs experiments and prints their results."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console

from flows.python.running import ablation, evaluate, prepare
from flows.runtime.flow_runs import ready_to_run, run_flow
from turnwise.credit_study.page import print_study
from turnwise.experiment import Experiment
from turnwise.project import home
from turnwise.reporting.terminal.comparison import print_report


def show_ablation(experiment: Experiment, processes: int | None = None) -> None:
    """Run an ablation, and print its comparison. `processes` takes precedence over `compute.runner`.

    Raises:
        TrainingEnded: a fault has left out runs; raised once the comparison of the others is printed.
    """
    console = Console()
    began = time.monotonic()
    result = ablation(experiment, processes=processes).result
    variants, runs = experiment.ablation.variants, len(experiment.ablation.variants) * len(experiment.ablation.seeds)
    sharing = experiment.compute.runner.with_processes(processes).processes
    saves_nothing = sharing <= runs and any(experiment.variant(name).rollout.lag for name in variants)
    from flows.commands.next_steps import next_steps

    steps = next_steps(experiment.ablation.name, variants, experiment.ablation.seeds, result.report.columns[0].heading)
    print_report(result.report, console)
    console.print()
    for name, value in (
        ("stages", f"{result.computed} computed, {result.found} found in the store"),
        ("digest", result.digest),
        *([("repeat", result.repeat)] if result.repeat else []),
        *([("lag", f"saves time with a process that samples ahead: --processes {runs + 1}")] if saves_nothing else []),
        ("report", result.folder / "report.html"),
        ("MLflow", home() / "mlflow.db"),
        ("took", f"{time.monotonic() - began:.0f} s"),
        *[("" if place else "next", step) for place, step in enumerate(steps)],
    ):
        console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)
    result.require_whole()


def show_preparation(experiment: Experiment) -> None:
    """Make the artifacts that every run starts from, and print their digests."""
    for name, reference in vars(prepare(experiment)).items():
        Console().print(f"{name:<16}{reference}", highlight=False, soft_wrap=True)


def show_evaluation(experiment: Experiment) -> None:
    """Evaluate the baseline policies and the warm start on the test task set, and print their success."""
    for name, metrics in evaluate(experiment).items():
        Console().print(evaluation_line(name, metrics), highlight=False, soft_wrap=True)


def evaluation_line(name: str, metrics: Mapping[str, float]) -> str:
    """The success of a policy with its own randomness, then with greedy replies; a scripted policy plays in one way."""
    greedy = f"{metrics['greedy/success']:.3f}" if "greedy/success" in metrics else "  –  "
    return (
        f"{name:<14}success {metrics['sampled/success']:.3f}  greedy success {greedy}  "
        f"turns {metrics['sampled/turns']:.2f}"
    )


def show_credit(experiment: Experiment, policy: str | None, tasks: int, replays: int) -> None:
    """Run the credit study, which compares every estimator with replays, and print its results."""
    console = Console()
    began = time.monotonic()
    ready_to_run(experiment, console)
    from flows.credit_study import study_credit  # imports Prefect

    run = run_flow(study_credit, experiment, policy, tasks, replays)
    print_study(run.study, console)
    console.print()
    for name, value in (
        *run.about.items(),
        ("stages", f"{run.computed} computed, {run.found} found in the store"),
        ("page", run.folder / "README.md"),
        ("took", f"{time.monotonic() - began:.0f} s"),
    ):
        console.print(f"{name:<25}{value}", highlight=False, soft_wrap=True)
