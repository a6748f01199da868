"""The commands that run an experiment, or a part of one.

Each imports what it needs only when it runs.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

import typer

from flows.commands.options import (
    MOST,
    PARAMETERS_FILE,
    Overlays,
    ParametersFile,
    Processes,
    Seed,
    Settings,
    load_experiment,
    say_what_begins,
)


def ablation(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    processes: Processes = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and count the work; compute nothing.")
    ] = False,
) -> None:
    """Compare the variants over the seeds, and write the report."""
    if not dry_run:
        say_what_begins(parameters, overlays)
    chosen = load_experiment(parameters, overlays, settings, to_plan=dry_run)
    if dry_run:
        from rich.console import Console

        from flows.commands.plan import show_plan

        show_plan(chosen, Console(), processes)
        return
    from flows.commands.running import show_ablation

    show_ablation(chosen, processes)


def experiment(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    variant: Annotated[
        str | None,
        typer.Option(help="A name of the section variants.", show_default="the parameters as they are"),
    ] = None,
    seed: Seed = None,
    processes: Processes = None,
) -> None:
    """Train and test one variant with one seed."""
    say_what_begins(parameters, overlays)
    from turnwise.experiment import single

    chosen = single(load_experiment(parameters, overlays, settings), variant, seed)
    from flows.commands.running import show_ablation

    show_ablation(chosen, processes)


def prepare(overlays: Overlays = None, parameters: ParametersFile = PARAMETERS_FILE, settings: Settings = None) -> None:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment."""
    say_what_begins(parameters, overlays)
    chosen = load_experiment(parameters, overlays, settings)
    from flows.commands.running import show_preparation

    show_preparation(chosen)


def evaluate(
    overlays: Overlays = None, parameters: ParametersFile = PARAMETERS_FILE, settings: Settings = None
) -> None:
    """Evaluate the baseline policies and the warm start on the test tasks."""
    say_what_begins(parameters, overlays)
    chosen = load_experiment(parameters, overlays, settings)
    from flows.commands.running import show_evaluation

    show_evaluation(chosen)


def stage(
    name: Annotated[
        Literal["prepare", "warm_start", "train", "report"],
        typer.Argument(metavar="STAGE", help="A stage of dvc.yaml.", show_default=False),
    ],
    parameters: ParametersFile = PARAMETERS_FILE,
    variant: Annotated[
        str | None, typer.Option(help="For train: a name of ablation.variants.", show_default=False)
    ] = None,
    seed: Seed = None,
) -> None:
    """Run one stage of dvc.yaml and write the files that DVC versions."""
    # `dvc exp run --temp` runs in a copy of the project and puts the path of the original into DVC_ROOT: parameters and
    # results are the copy's, the store and MLflow's database the original's.
    from turnwise.project import home

    os.environ["TURNWISE_HOME"] = str(home())
    os.environ.pop("DVC_ROOT", None)
    chosen = load_experiment(parameters, None, None)
    from rich.console import Console

    from flows.runtime.flow_runs import ready_to_run

    ready_to_run(chosen, Console())
    from flows.recording.dvc_stages import materialise  # imports Prefect

    materialise(name, chosen, variant, seed)


def credit(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST_OR_PATH", help="The policy that plays.", show_default="the experiment's warm start"
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, max=MOST, help="How many validation tasks are played.")] = 16,
    replays: Annotated[int, typer.Option(min=1, max=10_000, help="How often each state is played on.")] = 8,
) -> None:
    """Compare every credit rule with the truth, found by playing each state of a policy's episodes on many times."""
    chosen = load_experiment(parameters, overlays, settings)
    from flows.commands.running import show_credit

    show_credit(chosen, policy, tasks, replays)
