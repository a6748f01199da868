"""The interface that every world implements, and the rules that it must follow.

A **world** offers tasks and makes environments. An **environment** is the state of one episode: `reset`, then `step`
until the episode has ended. A world's module imports `turnwise.world`, `turnwise.seeding` and its own libraries, and
nothing else of Turnwise.

A world may rely on this: `reset` is called once, first; `step` is called with one action at a time, in order, from one
thread; the agent, not the world, enforces the limits on turns and actions. A world must ensure this: all randomness
comes from the seed given to `World.make`; an illegal or meaningless action is answered with a text that says what is
legal, and never raises; rewards are named raw values (the configuration gives them weights and levels).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Level = Literal["turn", "outcome"]


@dataclass(frozen=True)
class Task:
    """One problem instance. `id` is permanent: it depends on the world's data and version only."""

    world: str
    id: str
    split: Split
    seed: int
    tags: Mapping[str, str | int] = field(default_factory=dict)
    """Labels by which results are broken down, e.g. `{"hops": 2}`."""


@dataclass(frozen=True)
class Limits:
    """The limits of an episode, in turns and actions. `actions` counts over the whole episode; None: no such limit."""

    turns: int
    actions_per_turn: int = 1
    actions: int | None = None


@dataclass(frozen=True)
class Remaining:
    """What is left of the limits at the beginning of a turn, including that turn."""

    turns: int
    actions_per_turn: int
    actions: int


@dataclass(frozen=True)
class Observation:
    """What the agent reads.

    `state` names the environment's state for anchor-state credit: equal names mean equal situations. None: not named.
    """

    text: str
    state: str | None = None


@dataclass(frozen=True)
class Step:
    """The world's answer to one action.

    `terminated`: the episode ended by its own rules; `truncated`: a limit of the world's own cut it off.
    `valid`: the world knows the action and allows it here; `effective`: it changed the state; `success`: the task is
    now solved. `metrics` are numbers that are reported but not rewarded.
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
    """One turn of a scripted baseline policy: a short thought, and one or more actions in the world's grammar."""

    thought: str
    actions: tuple[str, ...]


class Environment(ABC):
    """One episode of one task. Single use: another episode needs another environment."""

    @abstractmethod
    def reset(self) -> Observation:
        """Start the episode. The same task and seed give the same observation in every process."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Play one action. Answers any text: nothing that a policy can write may raise."""

    @abstractmethod
    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next turn of a competent policy, which may read the task's hidden state but not future noise.

        A world without one raises here, and leaves "oracle" out of its `baselines`.
        """

    @abstractmethod
    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """A uniformly random baseline policy's decision; each world documents over what it is uniform."""

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The next turn of a baseline policy, by its name. A world with further ones extends this.

        Raises ValueError for an unknown name.
        """
        if baseline == "oracle":
            return self.oracle(remaining)
        if baseline == "random":
            return self.random(generator, remaining)
        raise ValueError(f"baseline policy must be one of the world's baseline policies; found {baseline!r}")

    def close(self) -> None:  # noqa: B027  (most worlds hold nothing; those that do override it)
        """Release the episode's resources. Called exactly once, also after an error."""


@dataclass(frozen=True)
class Reward:
    """A reward that a world can emit: its meaning, and the level and weight that its authors gave it."""

    description: str
    level: Level
    weight: float


@dataclass(frozen=True)
class Column:
    """A column of the comparison table: the mean over episodes of a number, or of the ratio of two."""

    heading: str
    value: str
    """`success`, `turns`, or a reward or metric of the world or the agent, summed over the episode."""
    per: str | None = None
    """The denominator, summed over the episode; episodes where it is 0 are left out. None: no division."""
    percent: bool = True
    """Whether to show the value as a percentage."""
    better: Literal["higher", "lower"] | None = "higher"
    description: str = ""
    """What is counted, in one sentence."""
    tag: tuple[str, str | int] | None = None
    """Count only episodes whose task has this tag with this value, e.g. `("world", "textcraft")`."""


class World(ABC):
    """A family of tasks, constructed with its parameters as keyword arguments; an invalid one raises ValueError."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Part of the cache key, and of what a task id stands for: increase it when the rules or the data change."""
    verbs: ClassVar[frozenset[str] | None] = None
    """The verbs, where actions have the form `verb[argument]`; else None. Lets a reply format refuse the world."""
    baselines: tuple[str, ...] = ("random", "oracle")
    """The baseline policies: "random" wherever actions can be drawn, "oracle" where one exists, and others that
    `decide` knows. An instance may have fewer than its class, e.g. because only it knows whether its server lists the
    possible actions."""
    blocks: bool = True
    """Whether a call to an environment may wait for something else than its own code, or take long: such calls run on a
    thread each and have a time limit. False: each call takes well below a millisecond, and runs where it is made."""
    names_states: bool = True
    """Whether all observations name their state, as anchor-state credit requires. False: some do not, and such credit
    is refused before any compute."""
    names_answers: bool = False
    """Whether every task has a right answer, which `answer` names, as credit by information gain requires."""
    primary_metric: ClassVar[str] = "success"
    """The metric by which variants are compared: `success`, or the name of a reward or metric of this world of which
    higher values are better."""
    oracle_success: ClassVar[float] = 0.0
    """A lower bound, 0 to 1, of the oracle's success on test tasks with the default parameters; checked."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Parameters of published settings, by name, e.g. `{"ragen-v1": {"success_rate": 0.3}}`. See `with_preset`."""
    rewards: ClassVar[Mapping[str, Reward]]
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success"),
        Column("format", "format"),
        Column("turns", "turns", percent=False, better=None),
    )
    """The columns of this world's comparison table, in order."""
    instruction: str
    """The prompt's explanation of the world: the aim and the meaning of observations, without the reply format."""
    grammar: str
    """The prompt's description of the legal actions, in one or two sentences."""
    limits: Limits
    """The limits under which this world's tasks are meant to be played, from its parameters."""

    @property
    def primary_column(self) -> Column:
        """The column by which variants are compared: the first whose value is the primary metric."""
        return next(column for column in self.columns if column.value == self.primary_metric)

    def limits_of(self, task: Task) -> Limits:
        """The limits of one task. Override where tasks differ; `limits` must then be enough for every task."""
        return self.limits

    @abstractmethod
    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, in one fixed order. Raises ValueError when there are fewer."""

    def split_size(self, split: Split) -> int | None:
        """The number of tasks of a split; None for an unlimited one. A world with finite splits overrides this."""
        return None

    @abstractmethod
    def make(self, task: Task, seed: int) -> Environment:
        """An environment for one episode. `seed` drives only the episode's noise; the problem is given by the task."""

    def answer(self, task: Task) -> str:
        """The action that gives the right answer to a task, such as `answer[Paris]`. Only if `names_answers`.

        A policy is never shown it while it plays. Raises ValueError for a task of another world.
        """
        raise NotImplementedError(f"the world {self.name!r} names no answers")

    def require_programs(self) -> None:  # noqa: B027  (most worlds need none; those that do override it)
        """Raise ValueError, with what to install, unless the programs that episodes are played in are on this machine.

        Asked before the first episode: to describe a world, or to plan with it, takes none of them.
        """

    def withheld_names(self) -> Collection[str]:
        """Names that only validation and test tasks are about. Base policies are pretrained on no text with them.

        Empty for a world whose tasks are not about names.
        """
        return ()

    def attribution(self) -> str | None:
        """The attribution that the data's licence demands: authors and licence; None where nothing is demanded."""
        return None

    @classmethod
    def modules(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The modules whose code (with all that they import) implements this world under these parameters.

        Their fingerprint is part of the cache key.
        """
        return (cls.__module__,)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The files and folders that these parameters name, by the parameter's dotted key.

        The cache key has their content instead of their path. None marks a path that does not affect results, such as
        that of an index: the cache key has neither.
        """
        return {}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The installed packages, by their names on PyPI, whose version may change this world's behaviour.

        Without numpy, whose version is part of the platform.
        """
        return ()

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Other things that may change this world's behaviour, by name: versions of programs and servers. May raise."""
        return {}


def require_family(task: Task, family: str) -> None:
    """Raise ValueError unless the task's id begins with `family`.

    Catches tasks of another world, and of this one with other parameters.
    """
    if not task.id.startswith(family):
        raise ValueError(f"a task of {family!r} must have an id that begins so; found {task.id!r}")
