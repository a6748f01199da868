"""Identity of a world: the files, libraries, programs and servers that its results depend on, by content or version.

A world declares what it reads (`World.files`, `distributions`, `state`), and this module looks it up. File paths are
left out of the result: another folder with the same content is the same world.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.config.schema import WorldSection
from turnwise.errors import ConfigurationError
from turnwise.plugins import versions
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint
from turnwise.store.outside import cached_sha256, outside_files
from turnwise.world import World, world_class


def world_ingredients(section: WorldSection) -> dict[str, Any]:
    """A world's name, version, parameters (without file paths) and dependencies, as a part of a cache key.

    Raises as `what_it_reads` does.
    """
    world, parameters = world_class(section.name), section.parameters
    return {
        "name": section.name,
        "version": world.version,
        "parameters": _without(parameters, list(world.files(parameters))),
        **what_it_reads(world, parameters),
    }


def world_digest(name: str, parameters: Mapping[str, Any]) -> str:
    """A digest of a world's code and dependencies: with its parameters, all that its episodes depend on.

    Raises as `what_it_reads` and `fingerprint` do.
    """
    world = world_class(name)
    return digest_of([fingerprint(world.modules(parameters)), what_it_reads(world, parameters)])


def what_it_reads(world: type[World], parameters: Mapping[str, Any]) -> dict[str, dict[str, str | None]]:
    """The digests of a world's files, the versions of its packages (None: not installed), and its external state.

    Raises:
        ConfigurationError: a file is missing, or has changed since this process first looked at it; worlds keep what
            they have read, so that the process would go on with the old content.
        Exception: whatever `World.state` raises, e.g. where a server cannot be reached.
    """
    return {
        "files": {key: _content(key, path) for key, path in world.files(parameters).items() if path is not None},
        "distributions": versions(world.distributions(parameters)),
        "state": dict(world.state(parameters)),
    }


def forget_contents() -> None:
    """Forget the contents seen so far: the next look at each file counts as the first."""
    _first.clear()


_first: dict[Path, str] = {}
"""The digest of each file and folder when this process first looked at it, by resolved path."""


def _content(key: str, path: Path) -> str:
    if path.is_dir():
        found = outside_files(path, (file for file in sorted(path.rglob("*")) if file.is_file())).content
    elif path.is_file():
        found = cached_sha256(path)
    else:
        raise ConfigurationError(f"world.parameters.{key} must name a file or folder; found nothing at {path}")
    if _first.setdefault(path.resolve(), found) != found:
        raise ConfigurationError(
            f"world.parameters.{key} must not change while a process plays the world; {path} has: start again"
        )
    return found


def _without(parameters: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    """The parameters without the given dotted keys."""
    here = {key for key in keys if "." not in key}
    kept = {}
    for name, value in parameters.items():
        if name in here:
            continue
        deeper = [key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}.")]
        kept[name] = _without(value, deeper) if deeper else value
    return kept
