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
turnwise verify                                is all that was computed intact? what is not, and what mends it
turnwise prune                                 remove what can be made again, and what storage does not keep
turnwise ui                                    MLflow's pages on what was run
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from flows.commands.arguments import PORT, Parser, add_commands, read_arguments
from flows.commands.compare import add_compare
from flows.commands.experiments import add_experiments
from flows.commands.lineage import add_lineage
from flows.commands.prune import add_prune
from flows.commands.reproduce import add_reproduce
from flows.commands.show import add_show
from flows.commands.verify import add_verify
from flows.commands.world_commands import add_worlds
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.store.full_disk import telling_of_a_full_disk
from turnwise.store.paths import home

OFFLINE = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables that turn off telemetry."""
THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}
"""Threads that spin while they wait slow each other down, tenfold was seen, when anything else uses the cores."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its status."""
    status = status_of(sys.argv[1:] if arguments is None else arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    _leave(status)


def status_of(arguments: Sequence[str]) -> int:
    """Run one command; a mistake is reported in one message, without a traceback. Returns the exit status:

    * 0: done.
    * 1: it ended early, or the result is not what it should be.
    * 2: nothing was computed, because a parameter, an argument or a file is wrong.
    """
    # A user's own world, `module:Class`, is imported from the folder in which the command is run.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name, value in {**OFFLINE, **THREADS}.items():
        os.environ.setdefault(name, value)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        with telling_of_a_full_disk():
            parsed = _parsed(arguments)
        parsed.run(parsed)
    except TurnwiseError as error:
        sys.stdout.flush()
        sys.stderr.write(f"turnwise: {error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1
    return 0


def _leave(status: int) -> None:
    """End the process at once: engine clean-up would take seconds, and a world that hangs would never let it end."""
    logging.shutdown()
    os._exit(status)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="turnwise", description=__doc__.splitlines()[0] if __doc__ else None)
    commands = add_commands(parser)
    add_experiments(commands)
    add_worlds(commands)
    add_show(commands)
    add_compare(commands)
    add_lineage(commands)
    add_reproduce(commands)
    add_prune(commands)
    add_verify(commands)
    _add_ui(commands)
    return read_arguments(parser, commands.choices, arguments)


def _add_ui(commands: Any) -> None:
    pages = commands.add_parser("ui", help="open MLflow's pages on what was run")
    pages.add_argument("--port", type=PORT, default=5000)
    pages.set_defaults(run=_ui)


def _ui(parsed: argparse.Namespace) -> None:
    from turnwise.tracking import ui_command
    from turnwise.tracking.database import prepare_database

    database = f"sqlite:///{home() / 'mlflow.db'}"
    command = ui_command(database, parsed.port)
    prepare_database(database)
    sys.stdout.write(f"MLflow on http://127.0.0.1:{parsed.port} (a few seconds to start; Ctrl-C ends it)\n")
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
