"""The contract that a world keeps, and the registry that finds worlds.

A **world** offers tasks and makes environments. An **environment** is one episode's state: `reset`, then `step` until
it has ended. A world's file imports this module, `turnwise.seeding` and its own library, and nothing else of ours.

What a world may rely on: `reset` is called once, first; `step` is called with one action at a time, in order, from one
thread; turn and action limits are kept by the agent, not by the world. What it must keep: everything random comes from
the seed given to `World.make`; an action that is illegal or makes no sense is answered with a text that says what is
legal, and never raises; rewards are named raw values (weights and levels are configuration, not the world's business).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

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
class ScriptedAction:
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
    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """What a competent player does now. May read the task's hidden state, not the episode's future noise.

        Where nobody knows, it raises, and "oracle" is not among the world's `players`.
        """

    @abstractmethod
    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """A uniformly random player's decision; each world documents over what it is uniform."""

    def decide(self, player: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
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


def require_family(task: Task, family: str) -> None:
    """Raise ValueError for a task of another world, or of this one with other parameters, by how its id begins."""
    if not task.id.startswith(family):
        raise ValueError(f"a task of {family!r} must have an id that begins so; found {task.id!r}")
