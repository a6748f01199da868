"""The contract that a world keeps, and the registry that finds worlds.

A **world** offers tasks and makes environments. An **environment** is one episode's state: `reset`, then `step` until
it has ended. A world's file imports this module, `turnwise.seeding` and its own library, and nothing else of ours.

What a world may rely on: `reset` is called once, first; `step` is called with one action at a time, in order, from one
thread; turn and action limits are kept by the agent, not by the world. What it must keep: everything random comes from
the seed given to `World.make`; an action that is illegal or makes no sense is answered with a text that says what is
legal, and never raises; rewards are named raw values (weights and levels are configuration, not the world's business).
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import numpy as np

from turnwise.suggestions import meant
from turnwise.world.parameter_types import mistyped, require_known

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Level = Literal["turn", "outcome"]


@dataclass(frozen=True)
class Task:
    """One problem instance. `id` names it for ever: it depends on the world's data and version, on nothing else."""

    world: str
    id: str
    split: Split
    seed: int
    tags: Mapping[str, str | int] = field(default_factory=dict)
    """What results are broken down by, e.g. `{"hops": 2}`."""


@dataclass(frozen=True)
class Limits:
    """What an episode may cost at most. `actions` counts over the whole episode; None means no such limit."""

    turns: int
    actions_per_turn: int = 1
    actions: int | None = None


@dataclass(frozen=True)
class Remaining:
    """What is left of the limits when a turn begins, the turn itself included."""

    turns: int
    actions_per_turn: int
    actions: int


@dataclass(frozen=True)
class Observation:
    """What the agent reads. `state` names the environment's state where equal states are equal situations (anchors)."""

    text: str
    state: str | None = None


@dataclass(frozen=True)
class Step:
    """The world's answer to one action.

    `terminated` means that the episode ended by its own rules, `truncated` that a limit of the world's own cut it off.
    `valid`: the action is one that the world knows and allows here; `effective`: it changed the state;
    `success`: the task is now solved. `metrics` are numbers that are reported but not rewarded.
    """

    observation: Observation
    rewards: Mapping[str, float] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    effective: bool = True
    success: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """What a scripted player does in one turn: a short thought, and one or more actions in the world's grammar."""

    thought: str
    actions: tuple[str, ...]


class Environment(ABC):
    """One episode of one task. Single use: make another for another episode."""

    @abstractmethod
    def reset(self) -> Observation:
        """Start the episode. The same task and seed give the same observation in every process."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Play one action. Any text is answered; nothing that a policy can write raises."""

    @abstractmethod
    def oracle(self, remaining: Remaining) -> Decision:
        """What a competent player does now. May read the task's hidden state, not the episode's future noise.

        Where nobody knows, it raises, and "oracle" is not among the world's `players`.
        """

    @abstractmethod
    def random(self, generator: np.random.Generator, remaining: Remaining) -> Decision:
        """A uniformly random player's decision; each world documents over what it is uniform."""

    def decide(self, player: str, generator: np.random.Generator, remaining: Remaining) -> Decision:
        """The decision of a scripted player by name. A world with further `players` extends this."""
        if player == "oracle":
            return self.oracle(remaining)
        if player == "random":
            return self.random(generator, remaining)
        raise ValueError(f"player must be one of the world's players; found {player!r}")

    def close(self) -> None:  # noqa: B027  (most worlds hold nothing; those that do override it)
        """Free what the episode holds. Called exactly once, also after an error."""


@dataclass(frozen=True)
class Reward:
    """A reward that a world can emit: what it means, and the level and weight that its authors gave it."""

    description: str
    level: Level
    weight: float


@dataclass(frozen=True)
class Column:
    """A column of the comparison: the mean over episodes of a number, or of one number per another."""

    heading: str
    value: str
    """`success`, `turns`, or a reward or metric of the world or the agent, summed over the episode."""
    per: str | None = None
    """Divide by this one's sum over the episode; episodes where that is 0 are left out."""
    percent: bool = True
    better: Literal["higher", "lower"] | None = "higher"
    description: str = ""
    """What is counted, in one sentence."""
    tag: tuple[str, str | int] | None = None
    """Count only episodes whose task has this tag with this value, e.g. `("world", "textcraft")`."""


class World(ABC):
    """A family of tasks, constructed with its parameters as keyword arguments; a wrong one raises ValueError."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Part of every task id's meaning and of the cache key: raise it when the rules or the data change."""
    verbs: ClassVar[frozenset[str] | None] = None
    """The verbs where actions have the form `verb[argument]`, else None: lets a format refuse a pairing."""
    players: tuple[str, ...] = ("random", "oracle")
    """The scripted players: "random" always, "oracle" where somebody knows what to do, and others that `decide` knows.
    An instance may have fewer than its class: only it knows, say, whether its server tells the possible actions."""
    names_states: bool = True
    """Whether observations name their state, for credit that compares visits to one. False: not all of this world's do,
    and such credit is refused before any compute."""
    primary_metric: ClassVar[str] = "success"
    """The number by which variants are compared: `success`, or the name of a reward or metric of this world."""
    oracle_success: ClassVar[float] = 0.0
    """The share of test tasks that the oracle solves at least, with the default parameters: a promise, checked."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Parameters by the name of a published setting, e.g. `{"ragen-v1": {"success_rate": 0.3}}`. See `with_preset`."""
    rewards: ClassVar[Mapping[str, Reward]]
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success"),
        Column("format", "format"),
        Column("turns", "turns", percent=False, better=None),
    )
    """What the comparison shows of this world, in order."""

    @property
    @abstractmethod
    def instruction(self) -> str:
        """What a newcomer must know to play: the aim and the meaning of what is shown. Without the reply format."""

    @property
    @abstractmethod
    def grammar(self) -> str:
        """The actions, in one or two sentences."""

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """The limits that this world's tasks are meant to be played under, from its parameters."""

    @property
    def primary_column(self) -> Column:
        """The column by which variants are compared: the first that shows the primary metric."""
        return next(column for column in self.columns if column.value == self.primary_metric)

    def limits_of(self, task: Task) -> Limits:
        """The limits of one task, where tasks differ in them; `limits` then allows for every task."""
        return self.limits

    @abstractmethod
    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split: a prefix of one fixed order. Raises ValueError when there are fewer."""

    def split_size(self, split: Split) -> int | None:
        """How many tasks a split has. None where it has no end: a world with an end overrides this."""
        return None

    @abstractmethod
    def make(self, task: Task, seed: int) -> Environment:
        """An environment for one episode. `seed` drives the episode's own noise; the problem comes from the task."""

    def attribution(self) -> str | None:
        """Whose data this is and under which licence, where something must be said."""
        return None

    @classmethod
    def modules(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The modules whose code, with all that they import, computes what this world does under these parameters."""
        return (cls.__module__,)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The files and folders that these parameters name, by the parameter's key.

        The cache key has their content and not their place. None: a place that decides nothing, such as an index's.
        """
        return {}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The installed packages, as pip calls them, whose version may change what this world does; without numpy."""
        return ()

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """What else may change it and can be asked for: versions of programs and of servers, by a name. May raise."""
        return {}


def whole_number(name: str, value: object, lowest: int, highest: int) -> int:
    """A world's parameter that must be a whole number from `lowest` to `highest`. Raises ValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise ValueError(f"{name} must be a whole number from {lowest} to {highest}; found {value!r}")
    return value


def share(name: str, value: object, *, above_zero: bool = False) -> float:
    """A world's parameter that must be a number from 0 to 1. Raises ValueError otherwise."""
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 0 <= value <= 1
        or (above_zero and value == 0)
    ):
        bounds = "above 0 and at most 1" if above_zero else "from 0 to 1"
        raise ValueError(f"{name} must be a number {bounds}; found {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """A world's parameter that must be a number above 0. Raises ValueError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ValueError(f"{name} must be a number above 0; found {value!r}")
    if value > 1e9:
        raise ValueError(f"{name} must be at most 1e9, which is 30 years of seconds; found {value!r}")
    return float(value)


def http_address(name: str, value: object) -> str:
    """A world's parameter that must be the address of a server, without a slash at its end. Raises ValueError."""
    parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
    if not isinstance(value, str) or parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(f"{name} must be such as http://127.0.0.1:8600; found {value!r}")
    return value.rstrip("/")


def require_family(task: Task, family: str) -> None:
    """Raise ValueError for a task of another world, or of this one with other parameters, by how its id begins."""
    if not task.id.startswith(family):
        raise ValueError(f"a task of {family!r} must have an id that begins so; found {task.id!r}")


ENTRY_POINTS = "turnwise.worlds"


def world_class(name: str) -> type[World]:
    """The world class by name.

    Looked up in this order: `module:Class`, then the installed entry points of the group `turnwise.worlds`.
    """
    if ":" in name:
        module_name, _, class_name = name.partition(":")
        found = getattr(_module(module_name, name), class_name, None)
        if not (isinstance(found, type) and issubclass(found, World)) or inspect.isabstract(found):
            raise ValueError(f"world {name!r} must name a subclass of turnwise.world.World; found {found!r}")
        return found
    for entry_point in _entry_points(tuple(sys.path)):
        if entry_point.name == name:
            loaded = entry_point.load()
            if not (isinstance(loaded, type) and issubclass(loaded, World)):
                raise ValueError(f"entry point {name!r} must load a subclass of turnwise.world.World; found {loaded!r}")
            return loaded
    worlds = installed_worlds()
    raise ValueError(
        f"world must be one of {', '.join(worlds)}, or 'module:Class'; found {name!r}{meant(name, worlds)}"
    )


def _module(name: str, world: str) -> ModuleType:
    """A module that somebody names. Raises ValueError where it cannot be imported, whatever it says."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"world {world!r} must be module:Class, with names of Python; found the module {name!r}")
    try:
        return importlib.import_module(name)
    except (ImportError, SyntaxError) as error:
        raise ValueError(
            f"world {world!r} must name a module that can be imported from here; found {type(error).__name__}: {error}"
        ) from error


def installed_worlds() -> tuple[str, ...]:
    """The names of every world that is installed, in order."""
    return tuple(sorted({entry_point.name for entry_point in _entry_points(tuple(sys.path))}))


@cache
def _entry_points(path: tuple[str, ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    """The worlds that are installed on this path; looked for once, since it takes as long as a turn of an episode."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINTS))


def make_world(name: str, parameters: Mapping[str, Any]) -> World:
    """A world by name, with its parameters. Raises ValueError for an unknown name or parameter, or a bad value."""
    made = world_class(name)
    require_known(made, parameters)
    try:
        return made(**parameters)
    except (AttributeError, TypeError) as error:
        if mistake := mistyped(made, parameters):
            raise ValueError(mistake) from error
        raise


def with_preset(name: str, preset: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a world's preset, with `parameters` laid over them; an empty name is no preset.

    Raises ValueError for a preset that the world does not have, with the nearest one.
    """
    if not preset:
        return dict(parameters)
    presets = world_class(name).presets
    if preset not in presets:
        known = f"it has {', '.join(presets)}" if presets else "it has none"
        raise ValueError(f"the world {name!r} has no preset {preset!r}{meant(preset, presets) or f': {known}'}")
    return {**presets[preset], **parameters}
