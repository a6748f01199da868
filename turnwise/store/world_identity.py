"""What the results of a world depend on beside its code: files, libraries, programs and servers, by content or version.

A world says what it reads (`World.files`, `distributions`, `state`), and this looks it up. The places of files are left
out of what it returns: another folder with the same content is the same world.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.config.schema import WorldSection
from turnwise.errors import ConfigurationError
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint
from turnwise.store.outside import outside_files, sha256_of
from turnwise.world import World, world_class


def world_ingredients(section: WorldSection) -> dict[str, Any]:
    """A world's name and version, its parameters without places, and what it reads. Raises as `what_it_reads`."""
    world, parameters = world_class(section.name), section.parameters
    return {
        "name": section.name,
        "version": world.version,
        "parameters": _without(parameters, list(world.files(parameters))),
        **what_it_reads(world, parameters),
    }


def world_digest(name: str, parameters: Mapping[str, Any]) -> str:
    """A digest of a world's code and of what it reads: what episodes follow from beside its parameters."""
    world = world_class(name)
    return digest_of([fingerprint(world.modules(parameters)), what_it_reads(world, parameters)])


def what_it_reads(world: type[World], parameters: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """The digests of a world's files, the versions of its distributions (None: not installed), and its state.

    Raises ConfigurationError for a file that is not there, and for one that has changed since this process first asked:
    worlds keep what they have read. What a server raises that cannot be asked, it raises too.
    """
    return {
        "files": {key: _content(key, path) for key, path in world.files(parameters).items() if path is not None},
        "distributions": {name: _version(name) for name in sorted(world.distributions(parameters))},
        "state": dict(world.state(parameters)),
    }


def forget_contents() -> None:
    """Take the next content of every file for its first."""
    _first.clear()


_first: dict[Path, str] = {}
"""The content of files and folders when this process first asked."""


def _content(key: str, path: Path) -> str:
    if path.is_dir():
        found = outside_files(path, (file for file in sorted(path.rglob("*")) if file.is_file())).content
    elif path.is_file():
        found = sha256_of(path)
    else:
        raise ConfigurationError(f"world.parameters.{key} must name a file or folder; found nothing at {path}")
    if _first.setdefault(path.resolve(), found) != found:
        raise ConfigurationError(
            f"world.parameters.{key} must not change while a process plays the world; {path} has: start again"
        )
    return found


@cache
def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _without(parameters: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    """The parameters without some, each by its dotted key."""
    here = {key for key in keys if "." not in key}
    kept = {}
    for name, value in parameters.items():
        if name in here:
            continue
        deeper = [key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}.")]
        kept[name] = _without(value, deeper) if deeper else value
    return kept
