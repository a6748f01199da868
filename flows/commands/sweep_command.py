"""`turnwise sweep`: try values before variants are compared.

turnwise sweep -s optimization.learning_rate=1e-4,3e-4,1e-3
turnwise sweep --variant mt-grpo -s optimization.learning_rate=1e-4,3e-4 -s optimization.clip_high=0.2,0.28
turnwise sweep --values values.yaml --random 8
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.options import (
    PARAMETERS_FILE,
    Overlays,
    ParametersFile,
    Processes,
    load_experiment,
    say_what_begins,
)


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
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of keys with what is tried of each.", show_default=False)
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Draw so many candidates.", show_default="a grid")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(help="A name of the section variants.", show_default="the parameters as they are"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Seeds of each candidate.")] = 3,
    processes: Processes = None,
) -> None:
    """Try values of some keys, on validation tasks and with seeds that no comparison uses."""
    say_what_begins(parameters, overlays)
    from rich.console import Console

    from flows.python.sweeping import sweep as run_sweep
    from turnwise.config.sweeps import read_choices, split_settings
    from turnwise.reporting.terminal.tables import print_table

    fixed, choices = split_settings(settings or [])
    if values is not None:
        choices = {**read_choices(values), **choices}
    experiment = load_experiment(parameters, overlays, fixed)
    console, began = Console(), time.monotonic()
    result = run_sweep(experiment, choices, random=random, variant=variant, seeds=seeds, processes=processes)
    print_table(result.report.table(), console)
    console.print(result.report.finding(), highlight=False, soft_wrap=True)
    console.print()
    for name, value in (
        ("stages", f"{result.computed} computed, {result.found} found in the store"),
        ("digest", result.digest),
        ("results", result.folder / "sweep.csv"),
        ("took", f"{time.monotonic() - began:.0f} s"),
        ("next", _using(result.report.winner.values, overlays or [], parameters, fixed, variant)),
    ):
        console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)
    result.require_whole()


def _using(
    winner: dict[str, Any] | Any, overlays: list[Path], parameters: Path, fixed: list[str], variant: str | None
) -> str:
    """The command that compares the variants with the best values."""
    from flows.commands.next_steps import own_command

    prefix = f"variants.{variant}." if variant is not None else ""
    named = [] if parameters == PARAMETERS_FILE else ["--parameters", str(parameters)]
    chosen = [f"{prefix}{key}={_as_setting(value)}" for key, value in winner.items()]
    set_to = [part for setting in (*fixed, *chosen) for part in ("-s", setting)]
    return f"{own_command()} {shlex.join(['ablation', *map(str, overlays), *named, *set_to])}"


def _as_setting(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
