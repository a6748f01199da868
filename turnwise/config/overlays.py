"""Plain values of an experiment: a parameters file, overlays laid over it in order, and settings of single keys.

Nothing here knows what the values mean: `turnwise.experiment` does. What is known is where each of them was written.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.config.strict_yaml import DEEPEST, Keys, YamlDocument, read_document
from turnwise.errors import ConfigurationError

REPLACED_WHOLE = ("world", "rewards", "variants")
"""Sections that an overlay replaces rather than merges: two worlds' parameters and rewards have nothing in common."""


@dataclass(frozen=True, order=True)
class Written:
    """Where something was written."""

    layer: int
    """The later one holds."""
    place: str
    """`file:line:column`; empty for what was set on the command line."""


@dataclass
class Layered:
    """Values in layers, and where each was written."""

    values: dict[str, Any] = field(default_factory=dict)
    _places: dict[Keys, Written] = field(default_factory=dict)
    """By the keys that lead to a value."""
    _layers: int = 0

    def lay_file(self, path: Path) -> None:
        """Lay a file over what there is. Raises ConfigurationError."""
        document = _document_of(path)
        changes = _sections(document, path)
        kept = {key: value for key, value in self.values.items() if key not in REPLACED_WHOLE or key not in changes}
        self.values = merged(kept, changes)
        self._layers += 1
        for keys, place in document.places.items():
            if len(keys) == 1 and keys[0] in REPLACED_WHOLE:
                self._forget(keys)
            self._places[keys] = Written(self._layers, f"{_shown(path)}:{place.line}:{place.column}")

    def set(self, key: str, value: Any) -> None:
        """Set one dotted key. Raises ConfigurationError where the path is not a mapping."""
        self.values = with_value(self.values, key, value)
        keys = tuple(key.split("."))
        self._forget(keys)
        self._layers += 1
        self._places[keys] = Written(self._layers, "")

    def written(self, keys: Keys) -> Written | None:
        """Where the last of these keys, or what is below it, was written last; None where none of them was."""
        length = next((length for length in range(len(keys), 0, -1) if keys[:length] in self._places), 0)
        if not length:
            return None
        own = self._places[keys[:length]]
        below = max(each for at, each in self._places.items() if at[:length] == keys[:length])
        return below if below.layer > own.layer and not below.place else own

    def _forget(self, keys: Keys) -> None:
        """The places of what is replaced."""
        self._places = {each: place for each, place in self._places.items() if each[: len(keys)] != keys}


def layered(
    parameters: Path, overlays: Sequence[Path] = (), settings: Iterable[str] | Mapping[str, Any] = ()
) -> Layered:
    """The values of a parameters file, overlays on it, and settings (`a.b=value`, or by dotted key).

    Raises ConfigurationError.
    """
    values = Layered()
    for path in (parameters, *overlays):
        values.lay_file(path)
    for key, value in settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings):
        values.set(key, value)
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML 1.2 file as DVC reads it: `3e-4` is a number and `NO` a word. Raises ConfigurationError."""
    return _sections(_document_of(path), path)


def _document_of(path: Path) -> YamlDocument:
    try:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "none"
            raise ConfigurationError(f"a parameters file must exist; found {found} at {_shown(path)}{_meant(path)}")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"a parameters file must be readable; {_shown(path)}: {error.strerror}") from error
    return read_document(content, Path(_shown(path)))


def _sections(document: YamlDocument, path: Path) -> dict[str, Any]:
    if not isinstance(document.value, dict):
        found = "nothing" if document.value is None else type(document.value).__name__
        raise ConfigurationError(f"{_shown(path)}: must hold a mapping of sections; found {found}")
    return document.value


def _shown(path: Path) -> str:
    """The path as seen from here, where it lies below; as it is otherwise."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)


def _meant(path: Path) -> str:
    """The file that was probably meant by one that does not exist, with some words before it."""
    folder = next((each for each in path.parents if each.is_dir()), Path())
    known = {_shown(each): each.name for each in sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])}
    found = difflib.get_close_matches(_shown(path), known, n=1, cutoff=0.8)
    found += [each for each, name in known.items() if difflib.get_close_matches(path.name, [name], cutoff=0.8)]
    return f": did you mean {found[0]!r}?" if found else ""


def parse_setting(setting: str) -> tuple[str, Any]:
    """`a.b=value` as (key, value), the value read as YAML. Raises ConfigurationError."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip(".") or len(key.split(".")) > DEEPEST:
        shown = setting if len(setting) <= 80 else f"{setting[:80]}..."
        raise ConfigurationError(f"a setting must be KEY=VALUE, e.g. credit.estimator=mt-grpo; found {shown!r}")
    if not all(key.split(".")):
        raise ConfigurationError(f"a setting's key must be names with a dot between two; found {key!r}")
    # What the command line gives as bytes that are no UTF-8 comes as surrogates, and goes back to bytes here.
    return key, read_document(text.encode("utf-8", "surrogateescape"), ascii(key)[1:-1]).value


def with_value(values: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested values with one dotted key set. Raises ConfigurationError where the path is not a mapping."""
    return _with_value(values, key.split("."), value, key)


def _with_value(values: Mapping[str, Any], keys: Sequence[str], value: Any, whole: str) -> dict[str, Any]:
    head, *rest = keys
    if not rest:
        return {**values, head: value}
    inner = values.get(head, {})
    if not isinstance(inner, Mapping):
        raise ConfigurationError(f"{whole}: {head!r} must be a section to set {'.'.join(rest)!r} in; found {inner!r}")
    return {**values, head: _with_value(inner, rest, value, whole)}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with `changes` laid over them: mappings merge, everything else is replaced."""
    result = dict(values)
    for key, change in changes.items():
        before = result.get(key)
        result[key] = merged(before, change) if isinstance(before, Mapping) and isinstance(change, Mapping) else change
    return result
