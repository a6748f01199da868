"""The commands that run an experiment, or a part of one, and print what came of it.

turnwise ablation --dry-run                        what would be computed
turnwise ablation experiments/starpo_s.yaml -s ablation.seeds=[1,2]
turnwise sweep -s optimization.learning_rate=1e-4,3e-4,1e-3
turnwise sweep --variant mt-grpo -s optimization.learning_rate=1e-4,3e-4 -s optimization.clip_high=0.2,0.28
turnwise sweep --values values.yaml --random 8
turnwise record models/mine --port 8700            an endpoint that outside agents talk to
turnwise record "mt-grpo seed 1" --best

Each imports what it needs only when it runs.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

import turnwise as tw
from flows.commands.options import (
    LARGEST_SEED,
    MOST,
    PARAMETERS_FILE,
    Overlays,
    ParametersFile,
    Port,
    Processes,
    Seed,
    Settings,
    Tracking,
    Variant,
    iteration_option,
    load_experiment,
    next_steps,
    own_command,
    say_what_begins,
)
from turnwise.errors import ConfigurationError
from turnwise.project import home


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
    say_what_begins(parameters, overlays)
    experiment = load_experiment(parameters, overlays, settings, to_plan=dry_run)
    if not dry_run:
        _run(experiment, processes)
        return
    from flows.commands.plan import show_plan

    show_plan(experiment, Console(highlight=False), processes)


def experiment(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    variant: Variant = None,
    seed: Seed = None,
    processes: Processes = None,
) -> None:
    """Train and test one variant with one seed."""
    say_what_begins(parameters, overlays)
    from turnwise.experiment import single

    _run(single(load_experiment(parameters, overlays, settings), variant, seed), processes)


def _run(experiment: tw.Experiment, processes: int | None) -> None:
    """Run an ablation, and print its comparison. `processes` takes precedence over `compute.runner`.

    Raises:
        TrainingEnded: a fault has left out runs; raised once the comparison of the others is printed.
    """
    from turnwise.reporting.terminal.comparison import print_report

    console, began = Console(), time.monotonic()
    result = tw.ablation(experiment, processes=processes).result
    variants, seeds = experiment.ablation.variants, experiment.ablation.all_seeds
    runs = experiment.ablation.runs_at_once
    sharing = experiment.compute.runner.with_processes(processes).processes
    saves_nothing = sharing <= runs and any(experiment.variant(name).rollout.lag for name in variants)
    steps = next_steps(experiment.ablation.name, variants, seeds, result.report.columns[0].heading)
    print_report(result.report, console)
    _print_lines(
        console,
        8,
        (
            ("stages", f"{result.computed} computed, {result.found} found in the store"),
            ("digest", result.digest),
            *([("repeat", result.repeat)] if result.repeat else []),
            *([("lag", f"saves time with a process that samples ahead: --processes {runs + 1}")] * saves_nothing),
            ("report", result.folder / "report.html"),
            ("MLflow", home() / "mlflow.db"),
            ("took", f"{time.monotonic() - began:.0f} s"),
            *[("" if place else "next", step) for place, step in enumerate(steps)],
        ),
    )
    result.require_whole()


def _print_lines(console: Console, width: int, lines: Iterable[tuple[str, object]]) -> None:
    """Print a blank line, then names in a column of this width, each with its value."""
    console.print()
    for name, value in lines:
        console.print(f"{name:<{width}}{value}", highlight=False, soft_wrap=True)


def sweep(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE[,VALUE...]",
            help="Set one value, or several that are tried; may be repeated.",
        ),
    ] = None,
    values: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of keys with what is tried of each.")
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Draw so many candidates.", show_default="a grid")
    ] = None,
    variant: Variant = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Seeds of each candidate.")] = 3,
    processes: Processes = None,
) -> None:
    """Try values of some keys, on validation tasks and with seeds that no comparison uses."""
    say_what_begins(parameters, overlays)
    from turnwise.config.sweeps import read_choices, split_settings
    from turnwise.reporting.terminal.tables import print_table

    fixed, choices = split_settings(settings or [])
    if values is not None:
        choices = {**read_choices(values), **choices}
    experiment = load_experiment(parameters, overlays, fixed)
    console, began = Console(), time.monotonic()
    result = tw.sweep(experiment, choices, random=random, variant=variant, seeds=seeds, processes=processes)
    print_table(result.report.table(), console)
    console.print(result.report.finding(), highlight=False, soft_wrap=True)
    prefix = "" if variant is None else f"variants.{variant}."
    file_option = [] if parameters == PARAMETERS_FILE else ["--parameters", str(parameters)]
    winner_values = {key: v if isinstance(v, str) else json.dumps(v) for key, v in result.report.winner.values.items()}
    best = [f"{prefix}{key}={value}" for key, value in winner_values.items()]
    set_to = [part for setting in (*fixed, *best) for part in ("-s", setting)]
    _print_lines(
        console,
        8,
        (
            ("stages", f"{result.computed} computed, {result.found} found in the store"),
            ("digest", result.digest),
            ("results", result.folder / "sweep.csv"),
            ("took", f"{time.monotonic() - began:.0f} s"),
            ("next", f"{own_command()} {shlex.join(['ablation', *map(str, overlays or []), *file_option, *set_to])}"),
        ),
    )
    result.require_whole()


def prepare(overlays: Overlays = None, parameters: ParametersFile = PARAMETERS_FILE, settings: Settings = None) -> None:
    """Make the task sets, demonstrations, tokenizer and warm start of an experiment."""
    say_what_begins(parameters, overlays)
    experiment = load_experiment(parameters, overlays, settings)

    for name, reference in vars(tw.prepare(experiment)).items():
        Console().print(f"{name:<16}{reference}", highlight=False, soft_wrap=True)


def evaluate(
    overlays: Overlays = None,
    parameters: ParametersFile = PARAMETERS_FILE,
    settings: Settings = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS[,STEPS...]",
            help="Warm starts of so many steps each, on the validation tasks, in their place.",
        ),
    ] = None,
) -> None:
    """Evaluate the baseline policies and the warm start on the test tasks."""
    say_what_begins(parameters, overlays)
    steps = [] if after is None else _steps(after)
    experiment = load_experiment(parameters, overlays, settings)
    from turnwise.experiment import after_steps

    for each in steps:
        after_steps(experiment, each)  # refused before the first of them is computed
    # One by one, since of a large policy each takes minutes: what is known is told although others follow.
    for lengths in [[each] for each in steps] or [[]]:
        for name, metrics in tw.evaluate(experiment, after=lengths).items():
            Console().print(evaluation_line(name, metrics), highlight=False, soft_wrap=True)


def _steps(after: str) -> list[int]:
    parts = [each.strip() for each in after.split(",")]
    if not all(each.isdecimal() for each in parts):
        raise tw.ConfigurationError(
            f"--after must be numbers of steps, such as 0,8,16; found {after!r}", "TW-option-format"
        )
    return [int(each) for each in parts]


def evaluation_line(name: str, metrics: Mapping[str, float]) -> str:
    """The success of a policy with its own randomness, then with greedy replies; a scripted policy plays in one way."""
    greedy = f"{metrics['greedy/success']:.3f}" if "greedy/success" in metrics else "  –  "
    return (
        f"{name:<14}success {metrics['sampled/success']:.3f}  greedy success {greedy}  "
        f"turns {metrics['sampled/turns']:.2f}"
    )


def stage(
    name: Annotated[
        Literal["fingerprints", "prepare", "warm_start", "train", "report"],
        typer.Argument(metavar="STAGE", help="A stage of dvc.yaml."),
    ],
    parameters: ParametersFile = PARAMETERS_FILE,
    variant: Annotated[str | None, typer.Option(help="For train: a name of ablation.variants.")] = None,
    seed: Seed = None,
) -> None:
    """Run one stage of dvc.yaml and write the files that DVC versions."""
    # `dvc exp run --temp` runs in a copy of the project and puts the path of the original into DVC_ROOT: parameters and
    # results are the copy's, the store and MLflow's database the original's.

    os.environ["TURNWISE_HOME"] = str(home())
    os.environ.pop("DVC_ROOT", None)
    experiment = load_experiment(parameters, None, None)
    if name == "fingerprints":
        from flows.dvc.fingerprints import write_fingerprints

        write_fingerprints(experiment)
        return
    from flows.runtime.flow_runs import ready_to_run

    ready_to_run(experiment, Console())
    from flows.dvc.stages import materialise  # imports Prefect

    materialise(name, experiment, variant, seed)


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
    critic_rollouts: Annotated[
        int, typer.Option(min=1, max=MOST, help="Rollouts of training tasks that rules' critic learns from before.")
    ] = 4,
    success: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Recorded runs with whose success closeness to the truth is compared."),
    ] = None,
) -> None:
    """Compare every credit rule with the truth, found by playing each state of a policy's episodes on many times."""
    experiment = load_experiment(parameters, overlays, settings)
    from flows.runtime.flow_runs import ready_to_run, run_flow
    from turnwise.credit_study.page import print_study, print_success

    console, began = Console(), time.monotonic()
    ready_to_run(experiment, console)
    from flows.credit_study import study_credit  # imports Prefect

    run = run_flow(study_credit, experiment, policy, tasks, replays, success or (), critic_rollouts=critic_rollouts)
    print_study(run.study, console)
    for success_study in run.success:
        print_success(success_study, console)
    _print_lines(
        console,
        25,
        (
            *run.about.items(),
            ("stages", f"{run.computed} computed, {run.found} found in the store"),
            ("page", run.folder / "README.md"),
            ("took", f"{time.monotonic() - began:.0f} s"),
        ),
    )


def record(
    policy: Annotated[str, typer.Argument(metavar="FOLDER or RUN", help="The policy that answers.")],
    iteration: Annotated[int | None, iteration_option("Of a run; 0: the warm start.", "the final policy")] = None,
    best: Annotated[bool, typer.Option("--best", help="Of a run: that with the most success in validation.")] = False,
    engine: Annotated[Literal["embedded", "vllm"], typer.Option(help="What samples.")] = "embedded",
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="CPU threads of the engine.")] = 1,
    context_tokens: Annotated[int, typer.Option(min=2, max=MOST, help="Of a context with its reply, at most.")] = 2048,
    reply_tokens: Annotated[int, typer.Option(min=1, max=MOST, help="Of a reply, at most.")] = 256,
    temperature: Annotated[float, typer.Option(min=0.01, max=100.0, help="At which everything is sampled.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of the sampling.")] = 0,
    host: Annotated[str, typer.Option(help="Another than the loopback address needs a token.")] = "127.0.0.1",
    port: Port = 8700,
    token_variable: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable that holds the token, the agents' API key.")
    ] = "TURNWISE_RECORD_TOKEN",
    tracking: Tracking = None,
) -> None:
    """Answer an outside agent by OpenAI's protocol, and record its episodes for credit and updates."""
    from envs.service.guards import require_safe

    token = os.environ.get(token_variable)
    try:
        require_safe(host, token)
    except ValueError as error:
        raise ConfigurationError(
            f"--{error}" if str(error).startswith("host") else str(error), "TW-service-address"
        ) from error
    from flows.python.outside_agents import record
    from flows.runtime.endpoint import address_at

    console = Console(highlight=False, soft_wrap=True)

    def print_rollout(rollout: dict[str, Any]) -> None:
        console.print(f"{rollout['rollout']}  {rollout['episodes']} episodes, {rollout['lost']} without a reward")

    recording = record(
        Path(policy) if Path(policy).is_dir() else policy,
        iteration=iteration,
        best=best,
        engine=engine,
        device=device,
        threads=threads,
        context_tokens=context_tokens,
        reply_tokens=reply_tokens,
        temperature=temperature,
        seed=seed,
        written=print_rollout,
        tracking=tracking,
    )
    with recording:
        recording.wait_until_ready()
        address = address_at(host, port)
        console.print(f"{recording.policy} answers at {address}/GROUP/EPISODE/v1 (Ctrl-C writes what was recorded)")
        console.print(f"reward: POST {address}/GROUP/EPISODE/reward; write a rollout: POST {address}/rollout")
        recording.serve(host, port, token)
