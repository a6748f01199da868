"""`turnwise worlds`: every installed world with its splits, limits, actions, and what its baselines reach."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.config.overlays import parse_setting
from turnwise.errors import ConfigurationError
from turnwise.reporting.baseline_table import BaselineRow, recorded_baselines
from turnwise.reporting.formatting import UNDEFINED, number
from turnwise.world import SPLITS, Limits, World, installed_worlds, make_world, with_preset, world_class

if TYPE_CHECKING:
    from turnwise.checking import CheckReport

DOCS = Path(__file__).parents[2] / "docs"
"""The folder with the baselines record that belongs to this version of the code."""
WIDTH = 100
"""Most columns of the terminal that the table uses."""
NO_END = "no end"


@dataclass(frozen=True)
class Installed:
    """An installed world, made with its defaults, or the reason why it cannot be made here."""

    name: str
    made: World | str

    @property
    def lacks(self) -> str | None:
        """Why it cannot be played here: it cannot be made, or a program is missing. None: it can."""
        if isinstance(self.made, str):
            return f"cannot be made here: {self.made}"
        try:
            self.made.require_programs()
        except ValueError as error:
            return f"cannot be played here: {error}"
        return None


def installed(names: Sequence[str] = ()) -> list[Installed]:
    """These worlds, or all that are installed, in order. Raises ConfigurationError for an unknown name."""
    for name in names:
        try:
            world_class(name)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
    return [Installed(name, _made(name)) for name in names or installed_worlds()]


def _made(name: str) -> World | str:
    """The world with its defaults, or why it cannot be made: a missing package or parameter."""
    try:
        parameters = inspect.signature(world_class(name)).parameters
        if needed := [each for each, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]:
            return f"it needs the parameters {', '.join(needed)}"
        return make_world(name, {})
    except (ImportError, TypeError, ValueError) as error:
        return str(error)


def named_world(name: str, preset: str, settings: Iterable[str]) -> tuple[World, dict[str, Any]]:
    """A world to be played, by name, preset and `key=value` settings, with all its parameters.

    Raises ConfigurationError, also where a program that plays it is missing.
    """
    try:
        parameters = with_preset(name, preset, dict(map(parse_setting, settings)))
        made = make_world(name, parameters)
        made.require_programs()
        return made, parameters
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def show_worlds(folder: Path) -> None:
    """Print the table, with the baselines that are recorded in a folder."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    lines = {line.key: line for line in recorded_baselines(folder)}
    console.print(_table(installed(), lines), width=min(console.width, WIDTH))
    console.print("Tasks: of train, validation and test. Success: on the test tasks, as `turnwise baselines` found it.")


def _table(worlds: Sequence[Installed], lines: Mapping[tuple[str, str, str], BaselineRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("world", no_wrap=True)
    table.add_column("tasks", no_wrap=True)
    table.add_column("limits", no_wrap=True)
    table.add_column("success", no_wrap=True)
    table.add_column("actions, and settings")
    for world in worlds:
        lacks = Text(world.lacks or "", style="dim")
        if isinstance(world.made, str):
            table.add_row(Text(world.name), "", "", "", lacks)
        else:
            *cells, actions = map(Text, _row(world.name, world.made, lines))
            table.add_row(*cells, Text("\n").join([actions, lacks]) if lacks else actions)
        table.add_section()
    return table


def _row(name: str, world: World, lines: Mapping[tuple[str, str, str], BaselineRow]) -> Sequence[str]:
    sizes = [(split, world.split_size(split)) for split in SPLITS]
    tasks = [f"{split} {NO_END if size is None else f'{size:,}'}" for split, size in sizes]
    endless = all(size is None for _, size in sizes)
    reached = [f"{baseline} {_success(lines.get((name, '', baseline)))}" for baseline in world.baselines]
    presets = f"\npresets: {', '.join(world.presets)}" if world.presets else ""
    actions = world.grammar + presets
    return name, NO_END if endless else "\n".join(tasks), _limits(world.limits), "\n".join(reached), actions


def _success(line: BaselineRow | None) -> str:
    return UNDEFINED if line is None else number(line.score.success.value, 2)


def _limits(limits: Limits) -> str:
    lines = [_count(limits.turns, "turn")]
    if limits.actions_per_turn > 1:
        lines.append(f"{limits.actions_per_turn} actions each")
    if limits.actions is not None:
        lines.append(f"{_count(limits.actions, 'action')} in all")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show_certificate(
    world: World, parameters: Mapping[str, Any], contract: CheckReport, folder: Path, tokenizer: Path | None
) -> None:
    """Measure a world's certificate, write it into a folder, and print what to know before training.

    `tokenizer` is a folder in Hugging Face's layout. Raises ConfigurationError where it cannot be read.
    """
    from turnwise.checking.certificate import certify
    from turnwise.reporting.html.certificate_page import CERTIFICATE_FILES, write_certificate

    counts = None if tokenizer is None else _token_counter(tokenizer)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with console.status(f"playing {world.name} by baseline policies and probes"):
        measured = certify(
            world,
            parameters=parameters,
            contract=contract,
            count_tokens=counts,
            tokenizer=tokenizer.name if tokenizer else "",
        )
    write_certificate(measured, folder)
    for remark in measured.remarks or ["No probe earned more than the random policy; no task stands out."]:
        console.print(remark)
    for name in CERTIFICATE_FILES:
        console.print(f"wrote {folder / name}")


def _token_counter(folder: Path) -> Callable[[str], int]:
    from turnwise.policy.tokenizer import load_tokenizer

    if not (folder / "tokenizer_config.json").is_file():
        raise ConfigurationError(
            f"--tokenizer must be a folder with a tokenizer in Hugging Face's layout; {folder} has no "
            "tokenizer_config.json: give the folder of a model"
        )
    tokenizer = load_tokenizer(folder)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
