"""The commands that compute stages: an experiment, parts of one, or several.

They need a Prefect server, whose address must be in the environment before Prefect is imported. So each command imports
what it needs only when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.arguments import SEED, one_of, whole
from turnwise.store.paths import home, project_root

if TYPE_CHECKING:
    from turnwise.experiment import Experiment

ECHO_TRAP = ("experiments/echo-trap.yaml", "experiments/echo-trap-bandit.yaml")
"""The experiments that are designed to collapse."""


def add_experiments(commands: Any) -> None:
    """Add every command of this module and its arguments."""
    _add_ablation(commands)
    _add_experiment(commands)
    _add_evaluate(commands)
    _add_prepare(commands)
    _add_credit(commands)
    _add_calibrate(commands)
    _add_stage(commands)
    _add_science(commands)


def _add_ablation(commands: Any) -> None:
    ablation = commands.add_parser("ablation", help="compare the variants over the seeds")
    _add_parameters(ablation)
    _add_processes(ablation)
    ablation.add_argument("--dry-run", action="store_true", help="check everything, count the work, compute nothing")
    ablation.set_defaults(run=_ablation)


def _ablation(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    if parsed.dry_run:
        from rich.console import Console

        from flows.commands.plan import show_plan

        show_plan(experiment, Console())
        return
    _ready_for_prefect()
    from flows.commands.running import show_ablation

    show_ablation(experiment, parsed.processes)


def _add_experiment(commands: Any) -> None:
    experiment = commands.add_parser("experiment", help="train one variant with one seed")
    _add_parameters(experiment)
    experiment.add_argument("--variant", help="a name of `variants` (default: the parameters as they are)")
    experiment.add_argument("--seed", type=SEED, help="default: the first of ablation.seeds")
    experiment.set_defaults(run=_experiment)


def _experiment(parsed: argparse.Namespace) -> None:
    from turnwise.experiment import single

    experiment = single(_load(parsed), parsed.variant, parsed.seed)
    _ready_for_prefect()
    from flows.commands.running import show_ablation

    show_ablation(experiment)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser("evaluate", help="play the scripted players and the warm start on the test panel")
    _add_parameters(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _evaluate(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands.running import show_evaluation

    show_evaluation(experiment)


def _add_prepare(commands: Any) -> None:
    prepare = commands.add_parser("prepare", help="make panels, demonstrations, tokenizer and warm start")
    _add_parameters(prepare)
    prepare.set_defaults(run=_prepare)


def _prepare(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands.running import show_preparation

    show_preparation(experiment)


def _add_credit(commands: Any) -> None:
    credit = commands.add_parser(
        "credit", help="put every credit rule beside the truth, by playing each state of a policy's episodes on"
    )
    _add_parameters(credit)
    credit.add_argument("--policy", metavar="DIGEST_OR_PATH", help="default: the experiment's warm start")
    credit.add_argument("--tasks", type=whole(1), default=16, help="of the validation panel (default: %(default)s)")
    credit.add_argument("--replays", type=whole(1, 10_000), default=8, help="of each state (default: %(default)s)")
    credit.set_defaults(run=_credit)


def _credit(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands.running import show_credit

    show_credit(experiment, parsed.policy, parsed.tasks, parsed.replays)


def _add_calibrate(commands: Any) -> None:
    calibrate = commands.add_parser("calibrate", help="find the alarms' bounds by runs that collapse on purpose")
    _add_parameters(calibrate, overlays="an experiment each (default: the Echo Trap)", settings="set one value in all")
    calibrate.add_argument("--folder", type=Path, help="of the page (default: docs, beside the code)")
    calibrate.set_defaults(run=_calibrate)


def _calibrate(parsed: argparse.Namespace) -> None:
    from turnwise.experiment import load

    parameters = project_root() / parsed.parameters
    overlays = parsed.overlays or ECHO_TRAP
    experiments = [load(parameters, [project_root() / overlay], parsed.set) for overlay in overlays]
    rules = load(parameters).alarms.rules
    _ready_for_prefect()
    from flows.commands.worlds import DOCS
    from flows.studies.calibrate import show_calibration

    defaults = {name: rule for name, rule in rules.items() if rule is not None}
    show_calibration(experiments, defaults, parsed.folder or DOCS)


def _add_stage(commands: Any) -> None:
    stage = commands.add_parser("stage", help="run one stage of dvc.yaml and write what DVC versions of it")
    stage.add_argument("stage", type=one_of("prepare", "warm_start", "train", "report"), help="of dvc.yaml")
    stage.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    stage.add_argument("--variant", help="of train: a name of ablation.variants")
    stage.add_argument("--seed", type=SEED, help="of train: one of ablation.seeds")
    stage.set_defaults(run=_stage)


def _stage(parsed: argparse.Namespace) -> None:
    from turnwise.experiment import load

    # `dvc exp run --temp` runs in a copy of the project and puts the path of the original into DVC_ROOT: parameters and
    # results are the copy's, the store and MLflow's database the original's.
    os.environ["TURNWISE_HOME"] = str(home())
    os.environ.pop("DVC_ROOT", None)
    experiment = load(project_root() / parsed.parameters)
    _ready_for_prefect()
    from flows.recording.dvc_stages import materialise

    materialise(parsed.stage, experiment, parsed.variant, parsed.seed)


def _add_science(commands: Any) -> None:
    science = commands.add_parser("science", help="put a paper's claims to the test and write its page in docs/science")
    science.add_argument("page", help="a name in experiments/claims")
    science.add_argument(
        "--run",
        dest="ablations",
        nargs="+",
        default=[],
        metavar="ABLATION",
        help="of the page, or core, or all (default: none, draw the page from what was run)",
    )
    _add_processes(science)
    science.set_defaults(run=_science)


def _science(parsed: argparse.Namespace) -> None:
    from turnwise.studies.claims import known_claims

    known_claims(parsed.page)
    if parsed.ablations:
        _ready_for_prefect()
    from flows.studies.science import write_page

    write_page(parsed.page, parsed.ablations, parsed.processes)


def _add_parameters(
    command: argparse.ArgumentParser,
    overlays: str = "files laid over the parameters, in order",
    settings: str = "set one value",
) -> None:
    """Add the arguments that define the experiment."""
    command.add_argument("overlays", nargs="*", metavar="OVERLAY", help=overlays)
    command.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help=settings)


def _add_processes(command: argparse.ArgumentParser) -> None:
    """Add the argument for the number of processes that share an ablation's runs."""
    command.add_argument(
        "--processes",
        type=whole(1, 1024),
        default=1,
        metavar="N",
        help="that share the runs; the results are the same (default: %(default)s)",
    )


def _load(parsed: argparse.Namespace) -> Experiment:
    from turnwise.experiment import load

    return load(project_root() / parsed.parameters, [Path(overlay) for overlay in parsed.overlays], parsed.set)


def _ready_for_prefect() -> None:
    """Start or find a Prefect server, import the libraries, and close the runs of killed processes.

    The server's settings must be in the environment before Prefect is imported; that import takes seconds too, so it
    is covered by the same status line.
    """
    from rich.console import Console

    from flows.runtime.server import ensure_server

    with Console().status("starting the local Prefect server (10 s the first time)") as status:
        ensure_server()
        status.update("loading the libraries")
        importlib.import_module("flows.commands.running")
        from flows.runtime.housekeeping import close_abandoned_runs, mark_flow_runs

        mark_flow_runs()
        close_abandoned_runs()
