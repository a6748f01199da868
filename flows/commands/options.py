"""What commands share: arguments and options, the next steps that they print, and the refusal of a command line."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.errors import ConfigurationError
from turnwise.suggestions import meant

if TYPE_CHECKING:
    from turnwise.experiment import Experiment


def installed_world_names() -> list[str]:
    """The names that the shell completes where a world is named."""
    from turnwise.world import installed_worlds

    return list(installed_worlds())


LARGEST_SEED = 2**63 - 1
MOST = 1_000_000
"""The largest count of episodes, tasks or iterations that an option takes."""

Overlays = Annotated[
    list[Path] | None, typer.Argument(metavar="OVERLAY", help="Files laid over the parameters, in order.")
]
ParametersFile = Annotated[Path, typer.Option("--parameters", help="The parameters file.")]
PARAMETERS_FILE = Path("params.yaml")
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set one value; may be repeated.")
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="How many processes share the runs, or sample ahead (rollout.lag); the results are the same.",
        show_default="compute.runner, or 1",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=LARGEST_SEED, help="The seed of the run.", show_default="the first of the ablation"),
]
Variant = Annotated[
    str | None,
    typer.Option(help="A name of the section variants.", show_default="the parameters as they are"),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")]
Tracking = Annotated[
    str | None,
    typer.Option(
        "--tracking", metavar="URI", help="MLflow's store.", show_default="tracking.uri, or the project's own database"
    ),
]
RecordFolder = Annotated[
    Path | None, typer.Option("--folder", help="Where the page and its data go.", show_default="docs, next to the code")
]


def iteration_option(help: str, default: str, *, first: int = 0) -> Any:
    """An option that names an iteration, from `first` on; `default` says which is meant without it."""
    return typer.Option(min=first, max=MOST, metavar="N", help=help, show_default=default)


def _worlds(metavar: str, help: str) -> Any:
    """An argument that the shell completes by the names of worlds."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=installed_world_names)


def _settings(help: str) -> Any:
    """Settings of a world, a rule or a reward by itself."""
    return typer.Option("--set", "-s", "-p", metavar="KEY=VALUE", help=f"{help}; may be repeated.")


WorldName = Annotated[str, _worlds("WORLD", "A world's name, or module:Class.")]
CheckedName = Annotated[
    str, _worlds("NAME", "A world's name or module:Class; a credit rule's or a reward's name or module:name.")
]
WorldNames = Annotated[list[str] | None, _worlds("WORLD", "All that are installed if none is named.")]
Preset = Annotated[str, typer.Option(metavar="NAME", help="Published settings of the world.")]
CheckedSettings = Annotated[
    list[str] | None, _settings("Set one parameter of the world, or one option of the rule or reward")
]
WorldSettings = Annotated[list[str] | None, _settings("Set one parameter of the world")]


def load_experiment(
    parameters: Path, overlays: list[Path] | None, settings: list[str] | None, *, to_plan: bool = False
) -> Experiment:
    """The experiment that a command line describes, as `flows.python.experiments.load` reads it."""
    from flows.python.experiments import load

    return load(*(overlays or []), parameters=parameters, settings=settings or [], to_plan=to_plan, tell=typer.echo)


def say_what_begins(parameters: Path, overlays: list[Path] | None) -> None:
    """Say on stderr what a command reads, before libraries are imported: on a busy machine these take a minute."""
    files = ", ".join(map(str, [parameters, *(overlays or [])]))
    typer.echo(f"turnwise: reading {files} and loading the libraries ...", err=True)


def refusal(error: typer.TyperException) -> ConfigurationError:
    """What Typer refuses in a command line, with what was found, the nearest valid name, and where the help is."""
    message = error.format_message().rstrip(".").removeprefix("Invalid value for ")
    message = message.replace("Value error, ", "").replace("Input should be", "must be")
    from pydantic import ValidationError

    context: Any = getattr(error, "ctx", None)
    if unknown := getattr(error, "possibilities", None):
        message = f"{error.message}{meant(getattr(error, 'option_name', ''), unknown)}"
    elif isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError) and error.param:
        value = error.__cause__.errors()[0]["input"]
        choices = error.param.type_descriptor.choices
        message += meant(value, map(str, choices)) if choices else f"; found {value!r}"
    return ConfigurationError(
        f"{message} (see {context.command_path if context else 'turnwise'} --help)", "TW-command-line"
    )


MODULES = {"turnwise": "flows.commands.cli", "pytest": "pytest"}
"""The programs of an environment, by the modules that Python runs where the program itself is missing."""


def own_command(program: str = "turnwise", folder: Path | None = None) -> str:
    """How a program of this environment is given from a folder, by default this one: by its name where the shell finds
    it by that, else by its path, below the folder without what leads to it.
    """
    script, here = Path(sys.executable).with_name(program), (folder or Path()).resolve()
    installed = shutil.which(program)
    if installed is not None and Path(installed).parent == script.parent:
        return program
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m {MODULES[program]}"
    return shlex.quote(os.path.relpath(script, here) if script.is_relative_to(here) else str(script))


def next_steps(ablation: str, variants: Sequence[str], seeds: Sequence[int], heading: str) -> list[str]:
    """Commands that show episodes, the comparison, where its first number comes from, and all runs in MLflow.

    `heading` is that of the table's first column.
    """
    run = f"{ablation}/{variants[0]} seed {seeds[0]}"
    comparison = [f"compare {ablation}"] if len(variants) > 1 else []
    steps = [f'show "{run}" --limit 2', *comparison, f'lineage "{variants[0]}/{heading}"', "ui"]
    return [f"{own_command()} {step}" for step in steps]
