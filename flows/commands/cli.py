"""The command line: `turnwise COMMAND`. The commands, grouped as `turnwise --help` shows them, are in `COMMANDS`.

No module that is imported here imports a library that takes long to load: a command imports what it needs when it runs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.commands.options import refusal
from flows.commands.records import compare, export, judge, lineage, reproduce, show, suite, ui, what_if
from flows.commands.running import ablation, credit, evaluate, experiment, prepare, record, stage, sweep
from flows.commands.starting import init, new
from flows.commands.store import prune, restore, verify
from flows.commands.worlds import check, play, serve, worlds
from flows.runtime.process_settings import prepare_process
from flows.runtime.streams import prepare_streams, unwritten_output
from turnwise.errors import ConfigurationError, TurnwiseError
from turnwise.own_process import collect_rarely
from turnwise.project import one_project
from turnwise.suggestions import meant


def commands_of_a_clone() -> Sequence[Callable[..., None]]:
    """The commands that write this repository's own pages and base policies; none in an installed package.

    They are in `lab`, which is in a clone next to this package and which nobody installs. Another module of that name,
    one of the user's say, is left alone.
    """
    clone = Path(__file__).parents[2]
    if not (clone / "lab" / "commands.py").is_file() or not (clone / "pyproject.toml").is_file():
        return ()
    if importlib.util.find_spec("lab") is None:  # an editable installation finds only what would be installed
        sys.path.append(str(clone))
    spec = importlib.util.find_spec("lab")
    if spec is None or spec.origin != str(clone / "lab" / "__init__.py"):
        return ()
    from lab.commands import COMMANDS as lab_commands

    return lab_commands


COMMANDS: Mapping[str, Sequence[Callable[..., None]]] = {
    "Begin": (init, new),
    "Run an experiment": (ablation, experiment, sweep, prepare, evaluate),
    "Agents that own their loop": (record,),
    "Look at what was run": (show, compare, suite, judge, what_if, lineage, ui),
    "Worlds": (worlds, check, play, serve),
    "Keep, repeat and repair": (export, reproduce, verify, prune, restore, stage),
    "Studies": (credit, *commands_of_a_clone()),
}

INTERRUPTED = 130
GOES_ON = frozenset(command.__name__ for command in (*COMMANDS["Run an experiment"], stage))
"""The commands that go on, when they are given again, where they were interrupted."""
FAULTS_SHOWN = 5
"""Of worlds, after which a further fault is only counted: a world with a mistake in it fails in every episode."""
LIMITS = {"turnwise.agent.host": (FAULTS_SHOWN, "of worlds"), "prefect.events.clients": (1, "of this kind")}
"""How many records of a logger are shown, and of what they are: a server that is lost takes none of a run's events."""


class CommandGroup(TyperGroup):
    """The commands; for one that does not exist, the nearest is suggested."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name. Raises ConfigurationError if there is none, but not for a shell's completions."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing:
            raise no_command(f"{cmd_name!r}{meant(cmd_name, self.commands)}")
        return command


app = typer.Typer(
    cls=CommandGroup, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
for subject, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=subject)(command)


def name_of(command: Callable[..., None]) -> str:
    """The name by which a command is called."""
    return command.__name__.replace("_", "-")


def no_command(command_name: str) -> ConfigurationError:
    """The refusal of a command line without a command, or with one that does not exist."""
    names = (name_of(command) for commands in COMMANDS.values() for command in commands)
    return ConfigurationError(f"COMMAND must be one of {', '.join(names)}; found {command_name}", "TW-unknown-command")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnwise {importlib.metadata.version('turnwise')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def turnwise(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Reproducible reinforcement learning of multi-turn language-model agents."""
    if context.invoked_subcommand is None:
        raise no_command("none")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its status."""
    prepare_streams()
    collect_rarely()
    status = status_of(sys.argv[1:] if arguments is None else arguments)
    sys.stdout.flush()
    if unwritten := unwritten_output():
        sys.stderr.write(f"turnwise: {unwritten}\n")
        status = status or 1
    sys.stderr.flush()
    _leave(status)


def status_of(arguments: Sequence[str]) -> int:
    """Run one command; a mistake is reported in one message, without a traceback. Returns the exit status:

    * 0: done.
    * 1: it ended early, or the result is not what it should be, as where a fault has left out a run.
    * 2: nothing was computed, because a parameter, an argument or a file is wrong.
    * 130: it was interrupted by Ctrl-C.
    """
    # A user's own world, `module:Class`, is imported from the folder in which the command is run.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    prepare_process()
    if not logging.getLogger().handlers:  # those of a process that calls this function stay as they are
        handler = logging.StreamHandler()
        for is_shown in (is_not_said_at_the_end, FirstFaults()):
            handler.addFilter(is_shown)
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", handlers=[handler])
        logging.raiseExceptions = False  # a log that a lost server did not take is not told: the run says what is lost
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        with one_project():
            status = run(arguments)
        if status == INTERRUPTED and arguments[0] in GOES_ON:
            sys.stderr.write(
                "turnwise: interrupted; what was computed is kept, and the same command goes on from there\n"
            )
        return status
    except TurnwiseError as error:
        sys.stdout.flush()
        sys.stderr.write(f"turnwise: {error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1


def is_not_said_at_the_end(record: logging.LogRecord) -> bool:
    """False for what Prefect logs, with a traceback, of an error that the command says in one sentence at its end.

    A task that ends so is logged twice: with its traceback, and then with its state. A server that is lost ends a flow
    run with an error of the connection, and Ctrl-C with what Prefect calls a crash.
    """
    if not record.name.startswith(("prefect.flow_runs", "prefect.task_runs")):
        return True
    error, message = record.exc_info[1] if record.exc_info else None, record.getMessage()
    if record.name.startswith("prefect.task_runs") and message.startswith("Finished in state Failed"):
        return False
    at_the_end = isinstance(error, TurnwiseError) or type(error).__module__.startswith("httpx")
    return not (at_the_end or "aborted by an interrupt signal" in message)


class FirstFaults(logging.Filter):
    """Shows the first faults of worlds and of the connection to Prefect's server, and says that no more follow.

    What is lost in the end is counted in the results, and too many losses stop the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen = dict.fromkeys(LIMITS, 0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.name not in LIMITS:
            return True
        most, kind = LIMITS[record.name]
        self._seen[record.name] += 1
        if self._seen[record.name] == most:
            record.msg = f"{record.msg} (further faults {kind} are not shown)"
        return self._seen[record.name] <= most


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns 0, or the status with which Typer ended it.

    Raises:
        ConfigurationError: nothing was computed, because a parameter, an argument or a file is wrong.
        TurnwiseError: it ended early, or the result is not what it should be.
    """
    try:
        return app(list(arguments), prog_name="turnwise", standalone_mode=False) or 0
    except typer.TyperException as error:
        raise refusal(error) from error
    except TurnwiseError:
        raise
    except Exception:
        from turnwise.store.full_disk import report_full_disk

        with report_full_disk():
            raise


def _leave(status: int) -> None:
    """End the process at once: engine clean-up would take seconds, and a world that hangs would never let it end."""
    logging.shutdown()
    os._exit(status)


if __name__ == "__main__":
    main()
