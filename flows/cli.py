"""The command line.

turnwise ablation                              the default experiment: variants x seeds, compared
turnwise ablation experiments/frozen_lake.yaml an overlay on params.yaml
turnwise experiment -s credit.estimator=mt-grpo --seed 3
turnwise worlds                                what can be played, and what scripted players reach
turnwise play sokoban --preset ragen           play an episode yourself, as the policy sees it
turnwise baselines                             play the scripted players and record what they reach
turnwise lessons                               record what the small policies of experiments/worlds have learned
turnwise credit                                every credit rule beside the truth, by replay
turnwise science mt_grpo --run core            run a paper's claims on this machine and write docs/science/
turnwise calibrate                             find the alarms' bounds by runs that collapse on purpose
turnwise check frozen_lake                     does a world keep its contract?
turnwise serve textcraft babyai                worlds over HTTP
turnwise show "mt-grpo seed 1"                 look at the episodes of a run
turnwise compare credit longer                 any recorded runs beside each other, with verdicts
turnwise lineage mt-grpo/success               from a number back to all that it came from
turnwise reproduce "mt-grpo seed 1"            make a run again elsewhere and compare the digests
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

from flows.compare import add_compare
from flows.lineage import add_lineage
from flows.reproduce import add_reproduce
from flows.show import add_show
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
    # A world of somebody's own, `module:Class`, lies in the folder where the command is given.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
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
        ("credit", _credit, "put every credit rule beside the truth, by playing each state of a policy's episodes on"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("overlays", nargs="*", metavar="OVERLAY", help="files laid over the parameters, in order")
        command.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
        command.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set one value")
        command.set_defaults(run=run)
        if name == "ablation":
            command.add_argument(
                "--dry-run", action="store_true", help="check everything, count the work, compute nothing"
            )
        if name == "experiment":
            command.add_argument("--variant", help="a name of `variants` (default: the parameters as they are)")
            command.add_argument("--seed", type=int, help="default: the first of ablation.seeds")
        if name == "credit":
            command.add_argument("--policy", metavar="DIGEST_OR_PATH", help="default: the experiment's warm start")
            command.add_argument("--tasks", type=int, default=16, help="of the validation panel (default: %(default)s)")
            command.add_argument("--replays", type=int, default=8, help="of each state (default: %(default)s)")
    calibrate = commands.add_parser("calibrate", help="find the alarms' bounds by runs that collapse on purpose")
    calibrate.add_argument("overlays", nargs="*", metavar="OVERLAY", help="an experiment each (default: the Echo Trap)")
    calibrate.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    calibrate.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set one value in all")
    calibrate.add_argument("--folder", type=Path, help="of the page (default: docs, beside the code)")
    calibrate.set_defaults(run=_calibrate)
    stage = commands.add_parser("stage", help="run one stage of dvc.yaml and write what DVC versions of it")
    stage.add_argument("stage", choices=("prepare", "warm_start", "train", "report"))
    stage.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    stage.add_argument("--variant", help="of train: a name of ablation.variants")
    stage.add_argument("--seed", type=int, help="of train: one of ablation.seeds")
    stage.set_defaults(run=_stage)
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
    science.set_defaults(run=_science)
    worlds = commands.add_parser("worlds", help="list the installed worlds")
    worlds.set_defaults(run=_worlds)
    check = commands.add_parser("check", help="check that a world keeps its contract")
    _add_world(check)
    check.set_defaults(run=_check)
    play = commands.add_parser("play", help="play an episode in the terminal")
    _add_world(play)
    play.add_argument("--split", default="train", help="train, validation or test (default: %(default)s)")
    play.add_argument("--task", type=int, default=0, metavar="N", help="its place in the split, from 0")
    play.add_argument("--seed", type=int, default=0, help="of the episode's noise (default: %(default)s)")
    play.add_argument(
        "--format",
        default="plain",
        help="plain: a line is the answer; or one of agent.format: what is typed is the whole reply",
    )
    play.set_defaults(run=_play)
    baselines = commands.add_parser("baselines", help="record what the scripted players reach")
    baselines.add_argument("worlds", nargs="*", metavar="WORLD", help="default: all that are installed")
    baselines.add_argument("--episodes", type=int, help="of every player (default: thousands, or hundreds)")
    baselines.add_argument("--folder", type=Path, help="of the record (default: docs, beside the code)")
    baselines.set_defaults(run=_baselines)
    learned = commands.add_parser("lessons", help="record what small policies have learned on each world")
    learned.add_argument("overlays", nargs="*", type=Path, metavar="OVERLAY", help="default: all of experiments/worlds")
    learned.add_argument("--folder", type=Path, help="of the record (default: docs, beside the code)")
    learned.set_defaults(run=_lessons)
    serving = commands.add_parser("serve", help="serve worlds over HTTP")
    serving.add_argument(
        "worlds",
        nargs="+",
        metavar="WORLD",
        help="a name, module:Class, WORLD@PRESET, WORLD={parameters} or WORLD=file.yaml",
    )
    serving.add_argument("--host", default="127.0.0.1", help="another than the loopback address needs a token")
    serving.add_argument("--port", type=int, default=8600)
    serving.add_argument(
        "--token-variable", default="TURNWISE_SERVICE_TOKEN", metavar="NAME", help="the environment variable with it"
    )
    serving.add_argument(
        "--processes", action="append", default=[], metavar="WORLD=N", help="workers (sciworld, browser: 1)"
    )
    serving.add_argument("--episodes", type=int, default=1024, help="open at once (default: %(default)s)")
    serving.add_argument("--lease-seconds", type=float, default=600.0)
    serving.add_argument("--call-seconds", type=float, default=300.0)
    serving.add_argument("--body-bytes", type=int, default=1_048_576)
    serving.set_defaults(run=_serve)
    add_show(commands)
    add_compare(commands)
    add_lineage(commands)
    add_reproduce(commands)
    pages = commands.add_parser("ui", help="open MLflow's pages on what was run")
    pages.add_argument("--port", type=int, default=5000)
    pages.set_defaults(run=_ui)
    return parser


def _add_world(command: argparse.ArgumentParser) -> None:
    """The arguments that say which world, with which parameters."""
    command.add_argument("world", help="a world's name, or module:Class")
    command.add_argument("--preset", default="", metavar="NAME", help="published settings; -p changes them")
    command.add_argument(
        "-p", "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set a world's parameter"
    )


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
    if parsed.dry_run:
        from rich.console import Console

        from flows.plan import show_plan

        show_plan(experiment, Console())
        return
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


def _credit(parsed: argparse.Namespace) -> None:
    experiment = _load(parsed)
    _ready_for_prefect()
    from flows.commands import show_credit

    show_credit(experiment, parsed.policy, parsed.tasks, parsed.replays)


def _science(parsed: argparse.Namespace) -> None:
    from turnwise.science.claims import known_claims

    known_claims(parsed.page)
    if parsed.ablations:
        _ready_for_prefect()
    from flows.commands import show_science

    show_science(parsed.page, parsed.ablations)


def _calibrate(parsed: argparse.Namespace) -> None:
    from turnwise.config import load

    parameters = project_root() / parsed.parameters
    overlays = parsed.overlays or [f"experiments/{name}.yaml" for name in ("echo-trap", "echo-trap-bandit")]
    experiments = [load(parameters, [project_root() / overlay], parsed.set) for overlay in overlays]
    rules = load(parameters).alarms.rules
    _ready_for_prefect()
    from flows.calibrate import show_calibration
    from flows.worlds import DOCS

    defaults = {name: rule for name, rule in rules.items() if rule is not None}
    show_calibration(experiments, defaults, parsed.folder or DOCS)


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
    from flows.worlds import named_world
    from turnwise.checking import check_world

    world, parameters = named_world(parsed.world, parsed.preset, parsed.set)
    found = check_world(world, parameters=parameters)
    sys.stdout.write("\n".join(found.lines()) + "\n")
    if not found.passed:
        raise TurnwiseError(f"the world {parsed.world!r} does not keep its contract")


def _worlds(parsed: argparse.Namespace) -> None:
    from flows.worlds import DOCS, show_worlds

    show_worlds(DOCS)


def _play(parsed: argparse.Namespace) -> None:
    from flows.play import play
    from flows.worlds import named_world

    world, _ = named_world(parsed.world, parsed.preset, parsed.set)
    play(world, parsed.split, parsed.task, parsed.format, parsed.seed, sys.stdin, sys.stdout)


def _baselines(parsed: argparse.Namespace) -> None:
    from flows.baselines import record_baselines
    from flows.worlds import DOCS

    record_baselines(parsed.worlds, parsed.folder or DOCS, parsed.episodes)


def _lessons(parsed: argparse.Namespace) -> None:
    from flows.lessons import record_lessons
    from flows.worlds import DOCS

    record_lessons(parsed.overlays, parsed.folder or DOCS)


def _serve(parsed: argparse.Namespace) -> None:
    from envs.service.episodes import ServiceLimits
    from envs.service.server import serve
    from turnwise.layering import parse_setting
    from turnwise.errors import ConfigurationError

    try:
        serve(
            parsed.worlds,
            host=parsed.host,
            port=parsed.port,
            token=os.environ.get(parsed.token_variable),
            processes=dict(map(parse_setting, parsed.processes)),
            limits=ServiceLimits(
                episodes=parsed.episodes,
                lease_seconds=parsed.lease_seconds,
                call_seconds=parsed.call_seconds,
                body_bytes=parsed.body_bytes,
            ),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _ui(parsed: argparse.Namespace) -> None:
    from turnwise.artifacts import home
    from turnwise.tracking import ui_command

    command = ui_command(f"sqlite:///{home() / 'mlflow.db'}", parsed.port)
    sys.stdout.write(f"MLflow on http://127.0.0.1:{parsed.port} (a few seconds to start; Ctrl-C ends it)\n")
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
