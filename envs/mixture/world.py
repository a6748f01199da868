"""The world: tasks of several worlds in one task set, each tagged `world` with the name of its part.

AgentGym-RL (arXiv 2509.08755) trains one policy per world; AgentGym (arXiv 2406.04151) trains one on all of them and
tests it on some that it was not trained on. Here both are a configuration: which worlds, with which weights, in which
split.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from turnwise.world import (
    SPLITS,
    Column,
    Environment,
    Limits,
    Observation,
    Remaining,
    ScriptedAction,
    Split,
    Step,
    Task,
    ValidatedEnvironment,
    World,
    make_world,
    positive,
    true_or_false,
    with_preset,
    world_class,
)

TAG = "world"
KEYS = ("world", "preset", "parameters", "weight")
NAME = re.compile(r"[A-Za-z0-9_-]+")


class Mixture(World):
    """Play several worlds, one in each episode.

    Parameters: `parts`, by name, each with its `world` (by default the name), `preset`, `parameters` and `weight` (1);
    `train`, `validation` and `test`, the names of the parts that provide a split's tasks: by default all, and for
    validation those of train; `introduce`, whether an episode begins with its world's instruction and grammar.

    A split takes its parts in turn by their weights. Every task keeps the limits of its own world (`limits_of`).
    Rewards and metrics are called `PART/NAME`, so parts may share names. The baseline policies are those that all parts
    have.
    """

    name: ClassVar[str] = "mixture"
    version: ClassVar[str] = "1"

    def __init__(
        self,
        *,
        parts: Mapping[str, Mapping[str, Any]],
        train: Sequence[str] | None = None,
        validation: Sequence[str] | None = None,
        test: Sequence[str] | None = None,
        introduce: bool = True,
    ) -> None:
        true_or_false("introduce", introduce)
        descriptions = read_descriptions(parts)
        validation = train if validation is None else validation
        names_by_split: dict[Split, Sequence[str] | None] = {"train": train, "validation": validation, "test": test}
        selected = {split: _selected(split, names, list(descriptions)) for split, names in names_by_split.items()}
        if idle := [name for name in descriptions if not any(name in names for names in selected.values())]:
            raise ValueError(f"every part must be in train, validation or test; found {', '.join(idle)} in none")
        self.parts = {name: description.make(name) for name, description in descriptions.items()}
        if any(isinstance(part.world, Mixture) for part in self.parts.values()):
            raise ValueError("a part must be a world of its own; found a mixture: name its parts here instead")
        self.introduce = introduce
        self._parts_of = {split: [self.parts[name] for name in selected[split]] for split in SPLITS}
        first, *others = [part.world for part in self.parts.values()]
        self.baselines = tuple(
            baseline for baseline in first.baselines if all(baseline in other.baselines for other in others)
        )
        self.names_states = all(part.world.names_states for part in self.parts.values())
        self.names_answers = all(part.world.names_answers for part in self.parts.values())
        self.instruction = "Each episode is in one of several worlds. It begins by saying what to do there."
        self.grammar = "The actions are those that the beginning of the episode names."
        if not introduce:
            each = [f"{part.name}: {part.world.instruction} {part.world.grammar}" for part in self.parts.values()]
            self.instruction = "\n".join(["Each episode is in one of these worlds.", *each])
            self.grammar = "The actions are those that its world names."
        limits = [part.world.limits for part in self.parts.values()]
        actions = [each.actions for each in limits if each.actions is not None]
        self.limits = Limits(  # the largest of each kind: see `limits_of` for one task
            turns=max(each.turns for each in limits),
            actions_per_turn=max(each.actions_per_turn for each in limits),
            actions=max(actions) if len(actions) == len(limits) else None,
        )
        # One class serves all mixtures, so these are set on the instance.
        self.rewards = {  # type: ignore[misc]
            f"{part.name}/{name}": each for part in self.parts.values() for name, each in part.world.rewards.items()
        }
        self.columns = self._all_columns()  # type: ignore[misc]
        self._family = f"{self.name}/{self.version}/"

    def limits_of(self, task: Task) -> Limits:
        """The limits of the task's own world."""
        part, own = self._own(task)
        return part.world.limits_of(own)

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks, of the parts in turn.

        Tags: those of the part's world, and `world`, the part's name.
        """
        order = list(islice(in_turn(self._parts_of[split]), count))
        needed = Counter(part.name for part in order)
        own = {name: iter(self._tasks_of(self.parts[name], split, number)) for name, number in needed.items()}
        return [self._task(part, next(own[part.name])) for part in order]

    def split_size(self, split: Split) -> int | None:
        """Number of tasks until the first part runs out; None if no part does."""
        remaining = {part.name: part.world.split_size(split) for part in self._parts_of[split]}
        if all(size is None for size in remaining.values()):
            return None
        for number, part in enumerate(in_turn(self._parts_of[split])):
            size = remaining[part.name]
            if size == 0:
                return number
            remaining[part.name] = None if size is None else size - 1
        raise AssertionError("a split that ends must end")

    def make(self, task: Task, seed: int) -> PartEpisode:
        """Environment of the task's own world. Raises ValueError when the task belongs to none of the parts."""
        part, own = self._own(task)
        introduction = f"{part.world.instruction}\n{part.world.grammar}\n" if self.introduce else ""
        return PartEpisode(part.name, ValidatedEnvironment(part.world.make(own, seed), task), introduction)

    def answer(self, task: Task) -> str:
        """The answer of the task's own world."""
        part, own = self._own(task)
        return part.world.answer(own)

    def withheld_names(self) -> frozenset[str]:
        """The names of all parts."""
        return frozenset(name for part in self.parts.values() for name in part.world.withheld_names())

    def attribution(self) -> str | None:
        """The attributions of the parts, joined; None if there are none."""
        attributions = dict.fromkeys(part.world.attribution() for part in self.parts.values())
        return " ".join(text for text in attributions if text) or None

    def require_programs(self) -> None:
        """Raise ValueError for a program that a part needs and that is not there."""
        for part in self.parts.values():
            part.world.require_programs()

    @classmethod
    def modules(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The modules of all parts, and this one."""
        parts = read_descriptions(parameters["parts"]).values()
        names = {module for part in parts for module in world_class(part.world).modules(part.parameters)}
        return (cls.__module__, *sorted(names))

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The files of the parts, under the parameter that names each."""
        return {
            f"parts.{name}.parameters.{key}": path
            for name, part in read_descriptions(parameters["parts"]).items()
            for key, path in world_class(part.world).files(part.parameters).items()
        }

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The distributions of the parts."""
        parts = read_descriptions(parameters["parts"]).values()
        return tuple({name for part in parts for name in world_class(part.world).distributions(part.parameters)})

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """The state of each part, under keys that begin with the part's name."""
        return {
            f"{name}/{what}": version
            for name, part in read_descriptions(parameters["parts"]).items()
            for what, version in world_class(part.world).state(part.parameters).items()
        }

    def _tasks_of(self, part: Part, split: Split, number: int) -> list[Task]:
        try:
            return part.world.tasks(split, number)
        except ValueError as error:
            raise ValueError(
                f"this task set needs {number} {split} tasks of the part {part.name!r}: {error}"
            ) from error

    def _task(self, part: Part, own: Task) -> Task:
        return replace(
            own, world=self.name, id=f"{self._family}{part.name}/{own.id}", tags={**own.tags, TAG: part.name}
        )

    def _own(self, task: Task) -> tuple[Part, Task]:
        """The part that a task belongs to, and the task as that part's world knows it."""
        name, _, own = task.id.removeprefix(self._family).partition("/")
        if not task.id.startswith(self._family) or name not in self.parts:
            raise ValueError(f"a task of this mixture must be named {self._family}PART/...; found {task.id!r}")
        tags = {tag: value for tag, value in task.tags.items() if tag != TAG}
        return self.parts[name], replace(task, world=self.parts[name].world.name, id=own, tags=tags)

    def _all_columns(self) -> tuple[Column, ...]:
        """Columns for success over all tasks and for each world of the test task set, then the usual ones."""
        success, *others = World.columns
        trained = [part.name for part in self._parts_of["train"]]
        part_columns = [
            Column(
                f"success {part.name}",
                "success",
                description=f"episodes of {part.name}{'' if part.name in trained else ', which is not trained on'}",
                tag=(TAG, part.name),
            )
            for part in self._parts_of["test"]
        ]
        return (success, *part_columns, *others)


def _selected(split: Split, names: Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    """Names of a split's parts; all parts if `names` is None."""
    if names is None:
        return known
    if not isinstance(names, list | tuple) or not names or len(set(map(str, names))) != len(names):
        raise ValueError(f"{split} must be a list of different names of parts; found {names!r}")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{split} must name parts, which are {', '.join(known)}; found {unknown[0]!r}")
    return names


@dataclass(frozen=True)
class Part:
    """One world of a mixture. Its share of a task set is its weight over the sum of the weights."""

    name: str
    world: World
    weight: float


@dataclass(frozen=True)
class Description:
    """A part as the parameters describe it, validated but not constructed."""

    world: str
    parameters: Mapping[str, Any]
    weight: float

    def make(self, name: str) -> Part:
        """Construct the part. Raises ValueError if its world refuses the parameters."""
        try:
            return Part(name, make_world(self.world, self.parameters), self.weight)
        except (TypeError, ValueError) as error:
            raise ValueError(f"part {name!r}: {error}") from error


def read_descriptions(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Description]:
    """Description of each part by name. Raises ValueError for an invalid one."""
    if not isinstance(parts, Mapping) or not parts:
        raise ValueError(f"parts must name the worlds, such as {{lake: {{world: frozen_lake}}}}; found {parts!r}")
    return {name: _read_description(name, options) for name, options in parts.items()}


def _read_description(name: str, options: Mapping[str, Any]) -> Description:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"a part's name must be letters, digits, - and _; found {name!r}")
    if not isinstance(options, Mapping):
        raise ValueError(f"part {name!r} must say of {', '.join(KEYS)} what is not usual; found {options!r}")
    for key in options:
        if key not in KEYS:
            nearest = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(KEYS)}"
            raise ValueError(f"part {name!r} has no key {key!r}: {hint}")
    world, parameters, weight = options.get("world", name), options.get("parameters", {}), options.get("weight", 1)
    if not isinstance(parameters, Mapping):
        raise ValueError(f"the parameters of part {name!r} must be a mapping; found {parameters!r}")
    weight = positive(f"the weight of part {name!r}", weight)
    return Description(world, with_preset(world, options.get("preset", ""), parameters), weight)


def in_turn(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts without end, so that at every point their counts are as close to their weights as whole numbers allow.

    The next part is the one furthest behind its share; the first of them on a tie. So the first tasks of a task set are
    mixed as the whole is, and a longer task set begins with a shorter one.
    """
    total = sum(part.weight for part in parts)
    counts = [0] * len(parts)
    for number in numbers(1):
        behind = [part.weight * number / total - counts[place] for place, part in enumerate(parts)]
        place = behind.index(max(behind))
        counts[place] += 1
        yield parts[place]


class PartEpisode(Environment):
    """Wraps a part's environment: only names change, and the first observation may begin with an introduction."""

    def __init__(self, part: str, environment: Environment, introduction: str) -> None:
        self._part = part
        self._environment = environment
        self._introduction = introduction

    def reset(self) -> Observation:
        """The part's first observation, after the introduction if there is one."""
        first = self._with_part(self._environment.reset())
        return replace(first, text=f"{self._introduction}\n{first.text}") if self._introduction else first

    def step(self, action: str) -> Step:
        """The part's step, renamed."""
        step = self._environment.step(action)
        return replace(
            step,
            observation=self._with_part(step.observation),
            rewards=self._prefixed(step.rewards),
            metrics=self._prefixed(step.metrics),
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Action of the part's oracle."""
        return self._environment.oracle(remaining)

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The part's random baseline policy."""
        return self._environment.random(generator, remaining)

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """The part's baseline policy of this name."""
        return self._environment.decide(baseline, generator, remaining)

    def close(self) -> None:
        """Free the resources of the part's environment."""
        self._environment.close()

    def _with_part(self, observation: Observation) -> Observation:
        state = None if observation.state is None else f"{self._part}/{observation.state}"
        return Observation(observation.text, state)

    def _prefixed(self, values: Mapping[str, float]) -> dict[str, float]:
        return {f"{self._part}/{name}": value for name, value in values.items()}
