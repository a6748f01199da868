"""`turnwise init` and `turnwise new`: the files that an experiment of one's own begins with.

turnwise init my-experiment             a folder with params.yaml, dvc.yaml and a world, outside a clone
turnwise init my-experiment --world till
turnwise new world till                 till.py and till.yaml, in the current folder
turnwise new rule best_half             best_half.py, best_half.yaml and test_best_half.py; the same for a reward

The files are those of `flows.commands.starters`, with the names that were asked for. Nothing is overwritten.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import keyword
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.commands.options import own_command
from turnwise.config.strict_yaml import read_document
from turnwise.errors import ConfigurationError

NewKind = Literal["world", "rule", "reward"]
FOLDER = ("params.yaml", "stages.yaml", "plots.html", "number_game.py", "README.md", "gitignore")
"""The starters of a folder."""


@dataclass(frozen=True)
class Starters:
    """The starters of one kind of plug-in."""

    module: str
    """The name of the module in them, which the one that was asked for replaces."""
    files: tuple[str, ...]
    object: str = ""
    """The name of the object in them where it is not the module's."""

    def object_name(self, module: str) -> str:
        """The name that a configuration gives to what stands in a module of this name."""
        return f"{module}:{_class_name(module) if self.object else module}"


WORLD = Starters("number_game", ("number_game.py", "number_game.yaml"), "NumberGame")
RULE = Starters("own_rule", ("own_rule.py", "own_rule.yaml", "test_own_rule.py"))
REWARD = Starters("own_reward", ("own_reward.py", "own_reward.yaml", "test_own_reward.py"))
KINDS: Mapping[NewKind, Starters] = {"world": WORLD, "rule": RULE, "reward": REWARD}
RENAMED = {"gitignore": ".gitignore", "stages.yaml": "dvc.yaml"}
"""Starters whose own name would act on this repository."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder, made where it is missing.")],
    world: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the world's module, such as my_task.")
    ] = "number_game",
) -> None:
    """Make a folder for an experiment of one's own: params.yaml, dvc.yaml and a world."""
    files = _starter_texts(WORLD, FOLDER, world, folder)
    files[folder / "requirements.txt"] = f"turnwise=={importlib.metadata.version('turnwise')}\n"
    _write(files)
    first = [shlex.join(["cd", str(folder)])] if folder.resolve() != Path.cwd() else []
    run = f"{own_command(folder=folder)} ablation"
    _say(files, [*first, *_first_steps("world", world, folder), f"{run} --dry-run", run])


def new(
    kind: Annotated[NewKind, typer.Argument(metavar="KIND", help="world | rule | reward")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of its module, such as my_task.")],
) -> None:
    """Write a world, a credit rule or a reward that keeps its contract, and an experiment on it, to begin from."""
    folder = Path()
    files = _starter_texts(KINDS[kind], KINDS[kind].files, name, folder)
    _write(files)
    run = f"{own_command()} ablation {name}.yaml"
    if not any((place / "params.yaml").is_file() for place in (Path.cwd(), *Path.cwd().parents)):
        run = f"in a folder with a params.yaml, which `turnwise init` makes: {run}"
    _say(files, [*_first_steps(kind, name, folder), f"{run} --dry-run", run])


def _first_steps(kind: NewKind, name: str, folder: Path) -> list[str]:
    """The commands, given from the folder, that look at what was written, before anything is trained."""
    object_name = KINDS[kind].object_name(name)
    check = f"{own_command(folder=folder)} check {object_name}"
    if kind == "world":
        return [check, f"{own_command(folder=folder)} play {object_name}"]
    return [check, f"{own_command('pytest', folder)} test_{name}.py"] if find_spec("pytest") else [check]


def _starter_texts(template: Starters, starters: tuple[str, ...], name: str, folder: Path) -> dict[Path, str]:
    """The text of each starter under the name that was asked for, by the file that it becomes."""
    _require_module_name(name, folder)
    texts = {}
    for starter in starters:
        text = importlib.resources.files("flows.commands.starters").joinpath(starter).read_text(encoding="utf-8")
        if template.object:
            text = text.replace(template.object, _class_name(name))
        path = folder / RENAMED.get(starter, starter.replace(template.module, name))
        texts[path] = text.replace(template.module, name)
    return texts


def _class_name(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def _require_module_name(name: str, folder: Path) -> None:
    """Raise ConfigurationError unless a module of this name can be imported from the folder, and hides no other."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not name.strip("_"):
        raise ConfigurationError(
            f"the name must be one of a Python module, in lower case, such as my_task; found {name!r}: choose another",
            "TW-name-form",
        )
    if read_document(name.encode(), name).value != name:
        raise ConfigurationError(
            f"the name must be a text in YAML, as variants are named; found {name!r}, which is none there: choose "
            "another",
            "TW-name-form",
        )
    if not (folder / f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigurationError(
            "the name must be that of no module that can be imported already, which it would hide; "
            f"found {name!r}: choose another",
            "TW-taken-name",
        )


def _write(files: Mapping[Path, str]) -> None:
    """Write all files, or none where one is there already."""
    from turnwise.store.atomic_write import write_whole

    if present := [str(path) for path in files if path.exists()]:
        raise ConfigurationError(
            f"nothing is overwritten; found {', '.join(present)}: choose another name or folder, or move them away",
            "TW-would-overwrite",
        )
    for path, text in files.items():
        write_whole(path, text)


def _say(files: Mapping[Path, str], commands: Sequence[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for path in files:
        console.print(f"wrote {path}")
    console.print("next:")
    for command in commands:
        console.print(f"  {command}")
