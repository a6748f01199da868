"""Plain values of an experiment: a parameters file, overlays laid over it in order, and settings of single keys.

Nothing here knows what the values mean: `turnwise.config` does.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from turnwise.errors import ConfigurationError

REPLACED_WHOLE = ("world", "rewards", "variants")
"""Sections that an overlay replaces rather than merges: two worlds' parameters and rewards have nothing in common."""


def layered(
    parameters: Path, overlays: Sequence[Path] = (), settings: Iterable[str] | Mapping[str, Any] = ()
) -> dict[str, Any]:
    """The values of a parameters file, overlays on it, and settings (`a.b=value`, or by dotted key).

    Raises ConfigurationError.
    """
    values = read_yaml(parameters)
    for overlay in overlays:
        changes = read_yaml(overlay)
        values = merged(
            {key: value for key, value in values.items() if key not in REPLACED_WHOLE or key not in changes}, changes
        )
    for key, value in settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings):
        values = with_value(values, key, value)
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML 1.2 file as DVC reads it: `3e-4` is a number and `NO` a word. Raises ConfigurationError."""
    if not path.is_file():
        raise ConfigurationError(f"a parameters file must exist; found none at {path}")
    values = YAML(typ="safe", pure=True).load(path.read_text())
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path} must hold a mapping of sections; found {type(values).__name__}")
    return values


def parse_setting(setting: str) -> tuple[str, Any]:
    """`a.b=value` as (key, value), the value read as YAML. Raises ConfigurationError."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"a setting must be KEY=VALUE, e.g. credit.estimator=mt-grpo; found {setting!r}")
    return key, YAML(typ="safe", pure=True).load(io.StringIO(text))


def with_value(values: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested values with one dotted key set. Raises ConfigurationError where the path is not a mapping."""
    head, dot, rest = key.partition(".")
    if not dot:
        return {**values, head: value}
    inner = values.get(head, {})
    if not isinstance(inner, Mapping):
        raise ConfigurationError(f"{key}: {head!r} must be a section to set {rest!r} in; found {inner!r}")
    return {**values, head: with_value(inner, rest, value)}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with `changes` laid over them: mappings merge, everything else is replaced."""
    result = dict(values)
    for key, change in changes.items():
        before = result.get(key)
        result[key] = merged(before, change) if isinstance(before, Mapping) and isinstance(change, Mapping) else change
    return result
