"""The command line.

turnwise ablation                              the default experiment: variants x seeds, compared
turnwise ablation experiments/frozen_lake.yaml an overlay on params.yaml
turnwise experiment -s credit.estimator=mt-grpo --seed 3
turnwise check frozen_lake                     does a world keep its contract?
turnwise ui                                    MLflow's pages on what was run
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from turnwise.artifacts import project_root
from turnwise.errors import TurnwiseError

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Nothing phones home."""
THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
"""Threads that spin while they wait stall one another as soon as anything else runs on the cores: tenfold was seen."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a mistake of ours or the user's is told in one message, without a traceback."""
    parsed = _parser().parse_args(arguments)
    for name, value in {**OFFLINE, **THREADS}.items():
        os.environ.setdefault(name, value)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        parsed.run(parsed)
    except TurnwiseError as error:
        sys.stderr.write(f"turnwise: {error}\n")
        sys.stdout.flush()
        _leave(1)
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(0)


def _leave(status: int) -> None:
    """End at once: tearing the engine down takes seconds, and a world that hangs would never let go."""
    logging.shutdown()
    os._exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="turnwise", description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("ablation", _ablation, "compare the variants over the seeds"),
        ("experiment", _experiment, "train one variant with one seed"),
        ("evaluate", _evaluate, "play the scripted players and the warm start on the test panel"),
        ("prepare", _prepare, "make panels, demonstrations, tokenizer and warm start"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("overlays", nargs="*", metavar="OVERLAY", help="files laid over the parameters, in order")
        command.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
        command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set one value")
        command.set_defaults(run=run)
        if name == "experiment":
            command.add_argument("--variant", help="a name of `variants` (default: the parameters as they are)")
            command.add_argument("--seed", type=int, help="default: the first of ablation.seeds")
    stage = commands.add_parser("stage", help="run one stage of dvc.yaml and write what DVC versions of it")
    stage.add_argument("stage", choices=("prepare", "warm_start", "train", "report"))
    stage.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    stage.add_argument("--variant", help="of train: a name of ablation.variants")
    stage.add_argument("--seed", type=int, help="of train: one of ablation.seeds")
    stage.set_defaults(run=_stage)
    check = commands.add_parser("check", help="check that a world keeps its contract")
    check.add_argument("world", help="a world's name, or module:Class")
    check.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set a world's parameter")
    check.set_defaults(run=_check)
    pages = commands.add_parser("ui", help="open MLflow's pages on what was run")
    pages.add_argument("--port", type=int, default=5000)
    pages.set_defaults(run=_ui)
    return parser


def _ready_for_prefect() -> None:
    """A Prefect server that answers; its settings must stand before Prefect is imported."""
    from rich.console import Console

    from flows.server import ensure_server

    console = Console()
    with console.status("starting the local Prefect server (10 s the first time)"):
        ensure_server()


def _load(parsed: argparse.Namespace):  # type: ignore[no-untyped-def]
    from turnwise.config import load

    root = project_root()
    return load(root / parsed.parameters, [Path(overlay) for overlay in parsed.overlays], parsed.set)


def _ablation(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands import show_ablation

    show_ablation(experiment)


def _experiment(parsed: argparse.Namespace) -> None:
    from turnwise.config import single

    experiment = single(_load(parsed), parsed.variant, parsed.seed)
    _ready_for_prefect()
    from flows.commands import show_ablation

    show_ablation(experiment)


def _evaluate(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands import show_evaluation

    show_evaluation(experiment)


def _prepare(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands import show_preparation

    show_preparation(experiment)


def _stage(parsed: argparse.Namespace) -> None:
    from turnwise.artifacts import home
    from turnwise.config import load

    # `dvc exp run --temp` runs a copy of the project and names the project itself in DVC_ROOT: parameters and results
    # are the copy's, the store and MLflow's database the project's.
    os.environ["TURNWISE_HOME"] = str(home())
    os.environ.pop("DVC_ROOT", None)
    experiment = load(project_root() / parsed.parameters)
    _ready_for_prefect()
    from flows.materialise import materialise

    materialise(parsed.stage, experiment, parsed.variant, parsed.seed)


def _check(parsed: argparse.Namespace) -> None:
    from turnwise.checking import check_world
    from turnwise.config import parse_setting
    from turnwise.errors import ConfigurationError
    from turnwise.world import make_world

    parameters = dict(map(parse_setting, parsed.set))
    try:
        world = make_world(parsed.world, parameters)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    found = check_world(world, parameters=parameters)
    sys.stdout.write("\n".join(found.lines()) + "\n")
    if not found.passed:
        raise TurnwiseError(f"the world {parsed.world!r} does not keep its contract")


def _ui(parsed: argparse.Namespace) -> None:
    from turnwise.artifacts import home
    from turnwise.tracking import ui_command

    command = ui_command(f"sqlite:///{home() / 'mlflow.db'}", parsed.port)
    sys.stdout.write(f"MLflow on http://127.0.0.1:{parsed.port} (a few seconds to start; Ctrl-C ends it)\n")
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
