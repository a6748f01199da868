"""Plug-ins: objects of a user's own files or of other packages that a configuration names.

| kind | named in | group of entry points | what the name must lead to |
|---|---|---|---|
| credit rule | `credit.estimator`, `credit.thought.estimator` | `turnwise.estimators` | an `Estimator`, or a function |
| selection rule | `selection.rule` | `turnwise.selections` | a function |
| reward | `rewards.NAME.function` | `turnwise.rewards` | a `RewardFunction`, or a function |
| reply format | `agent.format` | `turnwise.formats` | a subclass of `Format` |
| monitor | `monitors.added.NAME` | `turnwise.monitors` | a function |

A name is `module:object`, imported from the folder of the command or script, or a word that an installed package has
registered as an entry point. Worlds (`turnwise.worlds`) are named in the same two ways: see `turnwise.world.registry`.
The code of a plug-in's module, and of what that imports of the user's, is part of the cache key of every stage that
calls it; the versions of the packages that it declares are, too.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from turnwise.errors import ConfigurationError, raised_at
from turnwise.suggestions import meant


@dataclass(frozen=True)
class PluginKind:
    """What a plug-in can be."""

    title: str
    """As messages call it."""
    group: str
    """The group of entry points."""


CREDIT_RULE = PluginKind("credit rule", "turnwise.estimators")
SELECTION_RULE = PluginKind("selection rule", "turnwise.selections")
REWARD = PluginKind("reward", "turnwise.rewards")
FORMAT = PluginKind("reply format", "turnwise.formats")
MONITOR = PluginKind("monitor", "turnwise.monitors")
KINDS = (CREDIT_RULE, SELECTION_RULE, REWARD, FORMAT, MONITOR)


def is_named(kind: PluginKind, name: str) -> bool:
    """Whether the name is that of a plug-in of this kind: `module:object`, or an entry point. Nothing is imported."""
    return ":" in name or name in installed(kind)


def plugin(kind: PluginKind, key: str, name: str, built_in: Collection[str] = ()) -> Any:
    """The object that the name leads to, which the configuration gives under `key`.

    `built_in` are the names to suggest besides the installed ones. Raises ConfigurationError where there is no such
    plug-in, or it cannot be imported.
    """
    return _plugin(kind, key, name, tuple(built_in), tuple(sys.path))


@cache
def _plugin(kind: PluginKind, key: str, name: str, built_in: tuple[str, ...], path: tuple[str, ...]) -> Any:
    if ":" not in name and name not in installed(kind):
        known = [*built_in, *installed(kind)]
        raise ConfigurationError(
            f"{key} must be one of {', '.join(known)}, or 'module:name'; found {name!r}{meant(name, known)}",
            "TW-unknown-name",
        )
    module, _, attribute = _target(kind, name).partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except Exception as error:
        place = raised_at(error)
        raise ConfigurationError(
            f"{key} must name a {kind.title} in a module that can be imported from here; {name!r} gives "
            f"{type(error).__name__}: {error}{f' ({place})' if place else ''}",
            "TW-plugin-import",
        ) from error
    return target


def plugin_modules(kind: PluginKind, names: Iterable[str], built_in: Collection[str] = ()) -> list[str]:
    """The modules of those names that are plug-ins, for a cache key: a `built_in` name has none to add."""
    return [_target(kind, name).partition(":")[0] for name in names if name not in built_in and is_named(kind, name)]


def installed(kind: PluginKind) -> tuple[str, ...]:
    """The names of the installed plug-ins of this kind, sorted."""
    return tuple(sorted(entry_points(kind.group)))


def entry_points(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name. Cached, since the search takes as long as a turn of an episode."""
    return _entry_points(group, tuple(sys.path))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """`path` is `sys.path` as a tuple: a part of the cache's key."""
    by_name: dict[str, EntryPoint] = {}
    for entry_point in importlib.metadata.entry_points(group=group):
        by_name.setdefault(entry_point.name, entry_point)
    return by_name


def require_installed(title: str, distributions: Iterable[str]) -> None:
    """Raise ConfigurationError for a declared package that is not installed. `title` names what needs it."""
    for name, version in versions(distributions).items():
        if version is None:
            raise ConfigurationError(
                f"{title} needs the package {name}, which is not installed: install {name}", "TW-missing-package"
            )


def versions(distributions: Iterable[str]) -> dict[str, str | None]:
    """The version of each package as pip calls it; None where it is not installed."""
    return {name: _version(name) for name in sorted(distributions)}


@cache
def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _target(kind: PluginKind, name: str) -> str:
    """`module:object` of a name. Raises ConfigurationError where the module is not a name of Python."""
    target = name if ":" in name else entry_points(kind.group)[name].value.partition("[")[0].strip()
    module, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise ConfigurationError(
            f"the {kind.title} {name!r} must be module:name, with names of Python", "TW-plugin-name"
        )
    return target
