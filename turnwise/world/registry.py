"""The registry of worlds: classes looked up by installed name, or given as `module:Class`, and made from parameters."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import reprlib
import typing
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from turnwise.errors import ConfigurationError, raised_at
from turnwise.plugins import entry_points
from turnwise.suggestions import meant
from turnwise.world.contract import World

ENTRY_POINTS = "turnwise.worlds"


def world_class(name: str) -> type[World]:
    """The world class of a name: `module:Class`, or an installed entry point of the group `turnwise.worlds`.

    Raises:
        ConfigurationError: the name is unknown, cannot be imported, or is not a concrete subclass of World.
    """
    if ":" in name:
        module_name, _, class_name = name.partition(":")
        attribute = getattr(_module(module_name, name), class_name, None)
        return _required(f"world {name!r} must name", attribute)
    if (entry_point := entry_points(ENTRY_POINTS).get(name)) is not None:
        return _required(f"entry point {name!r} must load", _load(entry_point))
    worlds = installed_worlds()
    raise ConfigurationError(
        f"world must be one of {', '.join(worlds)}, or 'module:Class'; found {name!r}{meant(name, worlds)}",
        "TW-unknown-world",
    )


def _required(what: str, plugin: object) -> type[World]:
    """What was found, as a world class. Raises ConfigurationError unless it is one that can be made."""
    if not (isinstance(plugin, type) and issubclass(plugin, World)):
        raise ConfigurationError(f"{what} a subclass of turnwise.world.World; found {plugin!r}", "TW-plugin-kind")
    if inspect.isabstract(plugin):
        missing = ", ".join(sorted(plugin.__abstractmethods__))
        raise ConfigurationError(
            f"{what} a subclass of turnwise.world.World that can be made; {plugin!r} lacks {missing}", "TW-plugin-kind"
        )
    return plugin


def _module(name: str, world: str) -> ModuleType:
    """The module of a world given as `module:Class`. Raises ConfigurationError where it cannot be imported."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigurationError(
            f"world {world!r} must be module:Class, with names of Python; found the module {name!r}", "TW-plugin-name"
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        place = raised_at(error)
        raise ConfigurationError(
            f"world {world!r} must name a module that can be imported from here; found {type(error).__name__}: {error}"
            f"{f' ({place})' if place else ''}",
            "TW-plugin-import",
        ) from error


def _load(entry_point: importlib.metadata.EntryPoint) -> Any:
    """The object that an entry point names. Raises ConfigurationError where a package that it needs is missing."""
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        raise missing_package(entry_point.name, str(error.name)) from error


def missing_package(world: str, package: str) -> ConfigurationError:
    """The error for a world whose package is not installed, with the command that installs it.

    That is the extra of Turnwise with the world's name, where there is one, else the package itself.
    """
    extras = importlib.metadata.metadata("turnwise").get_all("Provides-Extra") or []
    remedy = f"pip install 'turnwise[{world}]'" if world in extras else f"install {package}"
    return ConfigurationError(
        f"the world {world!r} needs the package {package}, which is not installed: {remedy}", "TW-missing-package"
    )


def installed_worlds() -> tuple[str, ...]:
    """The names of all installed worlds, sorted."""
    return tuple(sorted(entry_points(ENTRY_POINTS)))


def make_world(name: str, parameters: Mapping[str, Any]) -> World:
    """The world of a name, constructed with its parameters.

    Raises:
        ConfigurationError: an unknown name or parameter, or an invalid value.
    """
    world = world_class(name)
    require_known(world, parameters)
    try:
        instance = world(**parameters)
    except (AttributeError, TypeError) as error:
        if mistake := mistyped(world, parameters):
            raise ConfigurationError(mistake, "TW-option-type") from error
        raise
    if lacking := [each for each in ("instruction", "grammar", "limits") if not hasattr(instance, each)]:
        raise ConfigurationError(
            f"world {name!r} must have an instruction, a grammar and limits; it has no {' and no '.join(lacking)}: see "
            "docs/your-own-world.md",
            "TW-plugin-kind",
        )
    return instance


def with_preset(name: str, preset: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a world's preset, overridden by `parameters`; an empty preset name means no preset.

    Raises ConfigurationError for a preset that the world does not have, with the most similar one.
    """
    if not preset:
        return dict(parameters)
    presets = world_class(name).presets
    if preset not in presets:
        known = f"it has {', '.join(presets)}" if presets else "it has none"
        raise ConfigurationError(
            f"the world {name!r} has no preset {preset!r}{meant(preset, presets) or f': {known}'}", "TW-unknown-preset"
        )
    return {**presets[preset], **parameters}


def require_known(constructor: Callable[..., object], parameters: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for a parameter that the constructor does not take, with the most similar that it does.

    A constructor with `**kwargs` accepts every name.
    """
    known = inspect.signature(constructor).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return
    for name in parameters:
        if name not in known:
            listing = f"known are {', '.join(known)}" if known else "there are none"
            raise ConfigurationError(f"{name} is no parameter: {listing}{meant(name, known)}", "TW-unknown-option")


def mistyped(constructor: type, parameters: Mapping[str, Any]) -> str | None:
    """A message on the first parameter that does not match its annotation; None where all match.

    Call it only after the constructor has failed: a value that the constructor takes is fine, whatever its annotation.
    """
    try:
        annotations = typing.get_type_hints(constructor.__init__)  # type: ignore[misc]
    except NameError:  # the module imports names of its annotations only under TYPE_CHECKING
        return None
    for name, value in parameters.items():
        if name not in annotations:
            continue
        try:
            TypeAdapter(annotations[name], config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            return f"{name} must be as its world takes it: {reason}; found {reprlib.repr(value)}"
        except PydanticUserError:  # a type with a pydantic configuration of its own, which refuses ours
            continue
    return None
