"""`turnwise init` and `turnwise new`: the files that an experiment of one's own begins with.

turnwise init my-experiment             a folder with params.yaml, dvc.yaml and a world, outside a clone
turnwise init my-experiment --world till
turnwise new world till                 till.py and till.yaml, in the current folder

The files are those of `flows.commands.starters`, with the names that were asked for. Nothing is overwritten.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import keyword
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from turnwise.errors import ConfigurationError
from turnwise.store.atomic_write import write_whole

MODULE, CLASS = "number_game", "NumberGame"
"""The names in the starters, which those that were asked for replace."""
FOLDER = ("params.yaml", "stages.yaml", "number_game.py", "README.md", "gitignore")
"""The starters of a folder."""
WORLD = ("number_game.py", "number_game.yaml")
"""The starters of a world."""
RENAMED = {"gitignore": ".gitignore", "stages.yaml": "dvc.yaml"}
"""Starters whose own name would act on this repository."""


def init_folder(folder: Path, world: str) -> None:
    """Write the files of an experiment of one's own into a folder, which is made where it is missing.

    Raises ConfigurationError where a file is there already, or the world's name is no good name for a module.
    """
    files = _written(FOLDER, world, folder)
    files[folder / "requirements.txt"] = f"turnwise=={importlib.metadata.version('turnwise')}\n"
    _write(files)
    _say(files, [f"cd {folder}"] if folder.resolve() != Path.cwd() else [], world, "turnwise ablation")


def new_world(name: str, folder: Path) -> None:
    """Write a world that keeps the contract, and an experiment on it, into a folder.

    Raises ConfigurationError as `init_folder` does.
    """
    files = _written(WORLD, name, folder)
    _write(files)
    _say(files, [], name, f"turnwise ablation {name}.yaml")


def _written(starters: tuple[str, ...], name: str, folder: Path) -> dict[Path, str]:
    """The text of each starter under the name that was asked for, by the file that it becomes."""
    _require_module_name(name, folder)
    written = {}
    for starter in starters:
        text = importlib.resources.files("flows.commands.starters").joinpath(starter).read_text(encoding="utf-8")
        path = folder / RENAMED.get(starter, starter.replace(MODULE, name))
        written[path] = text.replace(CLASS, _class_name(name)).replace(MODULE, name)
    return written


def _class_name(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def _require_module_name(name: str, folder: Path) -> None:
    """Raise ConfigurationError unless a module of this name can be imported from the folder, and hides no other."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower() or not name.strip("_"):
        raise ConfigurationError(
            "a world's name must be one of a Python module, in lower case, such as my_task; "
            f"found {name!r}: choose another"
        )
    if not (folder / f"{name}.py").exists() and find_spec(name) is not None:
        raise ConfigurationError(
            "a world's name must be that of no module that can be imported already, which it would hide; "
            f"found {name!r}: choose another"
        )


def _write(files: Mapping[Path, str]) -> None:
    """Write all files, or none where one is there already."""
    if present := [str(path) for path in files if path.exists()]:
        raise ConfigurationError(
            f"nothing is overwritten; found {', '.join(present)}: choose another name or folder, or move them away"
        )
    for path, text in files.items():
        write_whole(path, text)


def _say(files: Mapping[Path, str], first: list[str], world: str, run: str) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for path in files:
        console.print(f"wrote {path}")
    named = f"{world}:{_class_name(world)}"
    console.print("next:")
    for command in (*first, f"turnwise check {named}", f"turnwise play {named}", f"{run} --dry-run", run):
        console.print(f"  {command}")
