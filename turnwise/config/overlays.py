"""Configuration overlays: a parameters file, overlay files applied in order, and settings of single keys, merged.

The result is plain nested values; `turnwise.experiment` gives them meaning. For error messages this module keeps where
each value was written.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.config.nested import leaves
from turnwise.config.strict_yaml import DEEPEST, Keys, YamlDocument, read_document
from turnwise.errors import ConfigurationError

Overlay = Path | Mapping[str, Any]
"""What is laid over the parameters: a YAML file, or the sections that it would hold."""
REPLACED_WHOLE = ("world", "rewards", "variants")
"""Sections that an overlay replaces instead of merging: the parameters and rewards of two worlds do not combine."""


@dataclass(frozen=True, order=True)
class Written:
    """Where a value was written."""

    layer: int
    """Counted from 1; a value of a later layer overrides those of earlier ones."""
    place: str
    """`file:line:column`; empty for a setting of the command line."""


@dataclass
class Layered:
    """Values merged from layers, and where each was written."""

    values: dict[str, Any] = field(default_factory=dict)
    _places: dict[Keys, Written] = field(default_factory=dict)
    """By the path of keys to a value."""
    _layers: int = 0

    def lay(self, overlay: Overlay) -> None:
        """Apply a file, or sections that are given as values, on top of what is there. Raises ConfigurationError."""
        if isinstance(overlay, Mapping):
            self._lay_values(overlay)
        else:
            self._lay_file(overlay)

    def _lay_values(self, changes: Mapping[str, Any]) -> None:
        self._merge(changes)
        for section in changes:
            if section in REPLACED_WHOLE:
                self._forget((section,))
        for keys, _ in leaves(changes):
            self._forget(keys)
            self._places[keys] = Written(self._layers, "")

    def _merge(self, changes: Mapping[str, Any]) -> None:
        """Merge sections into the values, as a new layer."""
        base = {key: value for key, value in self.values.items() if key not in REPLACED_WHOLE or key not in changes}
        self.values = merged(base, changes)
        self._layers += 1

    def _lay_file(self, path: Path) -> None:
        document = _read_document(path)
        changes = _sections(document, path)
        self._merge(changes)
        display_path = _display_path(path)
        for keys, place in document.places.items():
            replaces = keys[0] in REPLACED_WHOLE if len(keys) == 1 else isinstance(_value_at(keys, changes), list)
            if replaces and keys in self._places:
                self._forget(keys)
            self._places[keys] = Written(self._layers, f"{display_path}:{place.line}:{place.column}")

    def set(self, key: str, value: Any) -> None:
        """Set one dotted key. Raises ConfigurationError where a part of its path is not a mapping."""
        self.values = with_value(self.values, key, value)
        keys = tuple(key.split("."))
        self._forget(keys)
        self._layers += 1
        self._places[keys] = Written(self._layers, "")

    def written(self, keys: Keys) -> Written | None:
        """Where the value at this path was written last: the value itself, or anything below it.

        Where the path is unknown, its longest known prefix counts; None where there is none.
        """
        length = next((length for length in range(len(keys), 0, -1) if keys[:length] in self._places), 0)
        if not length:
            return None
        own = self._places[keys[:length]]
        below = max(each for at, each in self._places.items() if at[:length] == keys[:length])
        return below if below.layer > own.layer and not below.place else own

    def _forget(self, keys: Keys) -> None:
        """Drop the places of a value that is replaced, and of everything below it."""
        self._places = {each: place for each, place in self._places.items() if each[: len(keys)] != keys}


def _value_at(keys: Keys, values: Any) -> Any:
    for key in keys:
        values = values[key]
    return values


def layered(
    parameters: Path, overlays: Sequence[Overlay] = (), settings: Iterable[str] | Mapping[str, Any] = ()
) -> Layered:
    """The values of a parameters file, with overlays applied in order, then settings (`a.b=value`, or by dotted key).

    An overlay is a file, or a mapping of sections as such a file would hold.

    Raises:
        ConfigurationError: a file or setting cannot be read, or sets a key within something that is no section.
    """
    values = Layered()
    for overlay in (parameters, *overlays):
        values.lay(overlay)
    for key, value in settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings):
        values.set(key, value)
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML 1.2 file, read as DVC does: `3e-4` is a number and `NO` a text.

    Raises ConfigurationError.
    """
    return _sections(_read_document(path), path)


def _read_document(path: Path) -> YamlDocument:
    try:
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "none"
            raise ConfigurationError(
                f"a parameters file must exist; found {kind} at {_display_path(path)}{_hint(path)}", "TW-missing-file"
            )
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"a parameters file must be readable; {_display_path(path)}: {error.strerror}", "TW-unreadable-file"
        ) from error
    return read_document(content, Path(_display_path(path)))


def _sections(document: YamlDocument, path: Path) -> dict[str, Any]:
    if not isinstance(document.value, dict):
        type_name = "nothing" if document.value is None else type(document.value).__name__
        raise ConfigurationError(
            f"{_display_path(path)}: must hold a mapping of sections; found {type_name}", "TW-not-a-section"
        )
    return document.value


def _display_path(path: Path) -> str:
    """The path for a message: relative where it is below the current folder, unchanged otherwise."""
    return os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)


def _hint(path: Path) -> str:
    """The suggestion `: did you mean ...?` for a file that does not exist; empty where no file has a similar name."""
    folder = next((each for each in path.parents if each.is_dir()), Path())
    files = {_display_path(each): each.name for each in sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])}
    matches = difflib.get_close_matches(_display_path(path), files, n=1, cutoff=0.8)
    matches += [each for each, name in files.items() if difflib.get_close_matches(path.name, [name], cutoff=0.8)]
    return f": did you mean {matches[0]!r}?" if matches else ""


def parse_setting(setting: str) -> tuple[str, Any]:
    """Parse `a.b=value` into (dotted key, value), with the value read as YAML. Raises ConfigurationError."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip(".") or len(key.split(".")) > DEEPEST:
        excerpt = setting if len(setting) <= 80 else f"{setting[:80]}..."
        raise ConfigurationError(
            f"a setting must be KEY=VALUE, e.g. credit.estimator=mt-grpo; found {excerpt!r}", "TW-option-format"
        )
    if not all(key.split(".")):
        raise ConfigurationError(
            f"a setting's key must be names with a dot between two; found {key!r}", "TW-option-format"
        )
    # Python decodes command-line bytes that are not UTF-8 to surrogates; `encode` restores them for the error message.
    return key, read_document(text.encode("utf-8", "surrogateescape"), ascii(key)[1:-1]).value


def with_value(values: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested values with one dotted key set; missing sections are made.

    Raises ConfigurationError where a part of the path is not a mapping.
    """
    return _with_value(values, key.split("."), value, key)


def _with_value(values: Mapping[str, Any], keys: Sequence[str], value: Any, whole: str) -> dict[str, Any]:
    head, *rest = keys
    if not rest:
        return {**values, head: value}
    inner = values.get(head, {})
    if not isinstance(inner, Mapping):
        raise ConfigurationError(
            f"{whole}: {head!r} must be a section to set {'.'.join(rest)!r} in; found {inner!r}", "TW-not-a-section"
        )
    return {**values, head: _with_value(inner, rest, value, whole)}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` overridden by `changes`: mappings are merged recursively, everything else is replaced."""
    result = dict(values)
    for key, change in changes.items():
        before = result.get(key)
        result[key] = merged(before, change) if isinstance(before, Mapping) and isinstance(change, Mapping) else change
    return result
