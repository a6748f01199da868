"""Identity of plug-ins and worlds: what a cache key has of them besides their code, by content or version.

The code of a plug-in's modules, and of what they import of the user's, is fingerprinted (`turnwise.store.fingerprint`).
Of installed packages that this code imports, or that the plug-in declares, the version counts; of files, the content. A
world declares what it reads (`World.files`, `distributions`, `state`). Paths of files are left out: another folder with
the same content is the same world.

External inputs are files and models that an experiment reads but did not make. A stage that reads one takes an
`Outside` as a parameter. Changed content changes the stage's cache key; moving the file to another folder, or spelling
its path differently, does not: see `known_by_content`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from turnwise.config.schema import Section, WorldSection
from turnwise.errors import ConfigurationError
from turnwise.plugins import versions
from turnwise.store.digests import digest_of, sha256_of
from turnwise.store.fingerprint import fingerprint, installed_imports
from turnwise.world import World, world_class

_first: dict[Path, str] = {}
"""The digest of each of a world's files and folders when this process first looked at it, by resolved path."""


def plugin_ingredients(
    modules: Sequence[str], distributions: Iterable[str] = (), files: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """The versions of packages and the digests of files, as a part of a cache key; empty where there are no modules.

    Args:
        modules: the modules of the plug-ins that a stage calls.
        distributions: packages that they declare, as pip calls them.
        files: files that they read, by a name that does not depend on their place.
    """
    if not modules:
        return {}
    imported = {name for top in installed_imports(modules) for name in providers().get(top, [])}
    return {
        "packages": versions({*imported, *distributions}),
        "files": {name: cached_sha256(path) for name, path in (files or {}).items()},
    }


@cache
def providers() -> Mapping[str, list[str]]:
    """The installed packages that provide each top-level module, as they were at the first call: it takes 0.2 s."""
    return importlib.metadata.packages_distributions()


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


def known_by_content(parameters: BaseModel) -> dict[str, Any]:
    """The parameters as plain values for a cache key.

    A file or model from outside is replaced by the digest of its content, a world section by what identifies the world,
    at any depth (`from_outside`).
    """
    values = parameters.model_dump(mode="json")
    for (*parents, last), content in from_outside(parameters).items():
        container: Any = values
        for each in parents:
            container = container[each]
        container[last] = content
    return values


def from_outside(parameters: BaseModel) -> dict[tuple[str | int, ...], Any]:
    """By its place in the parameters, what identifies each file, model and world that they name.

    Raises ConfigurationError where a world or its data is missing, and whatever an unreachable world server raises.
    """

    def walk(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        if isinstance(value, Outside):
            yield place, value.content
        elif isinstance(value, WorldSection):
            yield place, world_ingredients(value)
        elif isinstance(value, BaseModel | Mapping):
            for name, each in value.items() if isinstance(value, Mapping) else value:
                yield from walk(each, (*place, name))
        elif isinstance(value, list | tuple):
            for number, each in enumerate(value):
                yield from walk(each, (*place, number))

    return dict(walk(parameters, ()))


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


def _content(key: str, path: Path) -> str:
    if path.is_dir():
        digest = outside_files(path, (file for file in sorted(path.rglob("*")) if file.is_file())).content
    elif path.is_file():
        digest = cached_sha256(path)
    else:
        raise ConfigurationError(
            f"world.parameters.{key} must name a file or folder; found nothing at {path}", "TW-missing-file"
        )
    if _first.setdefault(path.resolve(), digest) != digest:
        raise ConfigurationError(
            f"world.parameters.{key} must not change while a process plays the world; {path} has: start again",
            "TW-changed-file",
        )
    return digest


def _without(parameters: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    """The parameters without the given dotted keys."""
    here = {key for key in keys if "." not in key}
    remaining = {}
    for name, value in parameters.items():
        if name in here:
            continue
        deeper = [key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}.")]
        remaining[name] = _without(value, deeper) if deeper else value
    return remaining


class Outside(Section):
    """Something from outside. A stage's cache key has its `content` and leaves its `place` out."""

    place: str
    """Where it is read: a path, or the name of a repository."""
    content: str
    """What is read there: a digest, or the name of a commit."""


def outside_file(path: Path) -> Outside:
    """An external file, identified by its SHA-256."""
    return Outside(place=str(path), content=cached_sha256(path))


def outside_files(folder: Path, files: Iterable[Path]) -> Outside:
    """Files of an external folder, identified by a digest of their relative paths and their contents."""
    return Outside(
        place=str(folder),
        content=digest_of({path.relative_to(folder).as_posix(): cached_sha256(path) for path in files}),
    )


def cached_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal.

    Cached per process; the file is read again only when its size, times or inode have changed.
    """
    # The state is an argument of the cached function, so that a changed file is another entry of the cache.
    status = path.stat()
    return _sha256(path.resolve(), (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))


@cache
def _sha256(path: Path, state: tuple[int, ...]) -> str:
    return sha256_of(path)
