"""Play episodes of the baseline policies under a world's own limits, and serialise them for comparison.

The agent's rollout loop is deliberately not used: the checker must not share its mistakes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from turnwise import seeding
from turnwise.checking.report import Broken
from turnwise.world import (
    SPLITS,
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
)

Decide = Callable[[Environment, Observation, Remaining], ScriptedAction]
"""A scripted policy in one episode: what it does after an observation, with so many turns and actions left."""
PROBE = "probe"
"""The policy that is played in a world without one of its own: every turn it draws one of `unread_replies`."""
SECONDS = 600.0
"""Time limit of another process that plays the same episodes, including its start and making the world."""


@dataclass(frozen=True)
class PlayedTurn:
    """One scripted action and the world's steps, one per action string that was played."""

    remaining: Remaining
    decision: ScriptedAction
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode of one scripted policy, from the first observation to its end."""

    task: Task
    baseline: str
    """The policy's name."""
    first: Observation
    turns: tuple[PlayedTurn, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of the world, in order."""
        return tuple(step for turn in self.turns for step in turn.steps)

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that were played, in order."""
        return tuple(action for turn in self.turns for action in turn.decision.actions[: len(turn.steps)])

    @property
    def success(self) -> bool:
        """Whether the world said that the task was solved."""
        return any(step.success for step in self.steps)

    def as_json(self) -> str:
        """The whole episode as JSON text; equal episodes have equal texts in every process."""
        return json.dumps(_plain(self), sort_keys=True)


def at_the_start(limits: Limits) -> Remaining:
    """The full limits, as they are when an episode begins."""
    actions = limits.turns * limits.actions_per_turn if limits.actions is None else limits.actions
    return Remaining(limits.turns, limits.actions_per_turn, actions)


def open_episode(world: World, task: Task, seed: int) -> Environment:
    """A new environment for the task, the same for every policy: its noise depends on the seed and the task."""
    return ValidatedEnvironment(world.make(task, seeding.derive(seed, "checked episode", task.id)), task)


def policies(world: World) -> tuple[str, ...]:
    """The world's baseline policies, or `PROBE` alone where it has none."""
    return tuple(world.baselines) or (PROBE,)


def play(world: World, task: Task, seed: int, baseline: str, *, ask_the_oracle: bool = False) -> PlayedEpisode:
    """Play one whole episode. `ask_the_oracle` asks the oracle before every turn and ignores its answer."""
    decide = baseline_policy(world, task, seed, baseline, ask_the_oracle=ask_the_oracle)
    return play_by(world, task, seed, baseline, decide)


def play_by(world: World, task: Task, seed: int, name: str, decide: Decide) -> PlayedEpisode:
    """Play one whole episode by any scripted policy of this name."""
    with closing(open_episode(world, task, seed)) as environment:
        first = environment.reset()
        return PlayedEpisode(task, name, first, tuple(play_turns(environment, first, world.limits_of(task), decide)))


def play_in_turns(world: World, tasks: Sequence[Task], seed: int, baseline: str) -> list[PlayedEpisode]:
    """Play one episode of each task with all environments open at once, taking one turn of each in rotation."""
    environments = [open_episode(world, task, seed) for task in tasks]
    try:
        firsts = [environment.reset() for environment in environments]
        baselines = [
            play_turns(environment, first, world.limits_of(task), baseline_policy(world, task, seed, baseline))
            for environment, first, task in zip(environments, firsts, tasks, strict=True)
        ]
        turns: list[list[PlayedTurn]] = [[] for _ in tasks]
        for _ in range(world.limits.turns):
            for episode_turns, following in zip(turns, baselines, strict=True):
                episode_turns.extend(turn for turn in [next(following, None)] if turn is not None)
    finally:
        for environment in environments:
            environment.close()
    together = zip(tasks, firsts, turns, strict=True)
    return [PlayedEpisode(task, baseline, first, tuple(episode_turns)) for task, first, episode_turns in together]


def baseline_policy(world: World, task: Task, seed: int, baseline: str, *, ask_the_oracle: bool = False) -> Decide:
    """One of `policies(world)` in one episode of the task. `ask_the_oracle` asks it too, before every turn."""
    generator = seeding.generator(seed, "checked player", baseline, task.id)
    replies = [reply for _, _, reply in unread_replies(world)]

    def decide(environment: Environment, observation: Observation, remaining: Remaining) -> ScriptedAction:
        if ask_the_oracle:
            environment.oracle(remaining)
        if baseline == PROBE:
            return ScriptedAction("", (replies[generator.integers(len(replies))](observation),))
        return environment.decide(baseline, generator, remaining)

    return decide


def unread_replies(world: World) -> Iterator[tuple[str, str, Callable[[Observation], str]]]:
    """Replies that need no understanding of the task: a name, what it does in words, and it after an observation."""
    yield "empty", "answers nothing", lambda _: ""
    yield "copy", "sends back what it was shown", lambda observation: observation.text
    for verb in sorted(world.verbs or ()):
        yield f"{verb}[]", f"uses {verb} without an argument", partial(_use, verb, copies=False)
        yield f"{verb}[copy]", f"gives {verb} what it was shown", partial(_use, verb, copies=True)


def _use(verb: str, observation: Observation, *, copies: bool) -> str:
    return f"{verb}[{observation.text if copies else ''}]"


def play_turns(environment: Environment, first: Observation, limits: Limits, decide: Decide) -> Iterator[PlayedTurn]:
    """Play an environment that was reset, turn by turn, until it ends or a limit is reached."""
    observation, remaining = first, at_the_start(limits)
    while remaining.turns > 0 and remaining.actions > 0:
        decision = decide(environment, observation, remaining)
        steps: list[Step] = []
        for action in decision.actions[: min(remaining.actions_per_turn, remaining.actions)]:
            steps.append(environment.step(action))
            if steps[-1].terminated or steps[-1].truncated:
                break
        yield PlayedTurn(remaining, decision, tuple(steps))
        if steps:
            if steps[-1].terminated or steps[-1].truncated:
                return
            observation = steps[-1].observation
        remaining = Remaining(remaining.turns - 1, remaining.actions_per_turn, remaining.actions - len(steps))


def first_tasks(world: World, split: Split, count: int) -> list[Task]:
    """The first `count` tasks of a split, or all tasks of a smaller split.

    If a split does not state its size, `count` is halved until the world can give that many tasks. Raises ValueError if
    it cannot give one.
    """
    size = world.split_size(split)
    count = count if size is None else min(count, size)
    while True:
        try:
            return world.tasks(split, count)
        except ValueError:
            if count == 1:
                raise
            count //= 2


def digests(world: World, count: int, seed: int) -> dict[str, str]:
    """The result of `digests_of` with every episode played now."""
    return digests_of(world, count, lambda task, baseline: play(world, task, seed, baseline))


def digests_of(world: World, count: int, play_episode: Callable[[Task, str], PlayedEpisode]) -> dict[str, str]:
    """Digests of the world's instruction, grammar and limits, of each split's tasks, and of each policy's episodes.

    `count`: tasks per split; `play_episode`: the episode of a task and a policy. The keys name what was digested.
    """
    entries = {"instruction, grammar and limits": _digest([world.instruction, world.grammar, asdict(world.limits)])}
    for split in SPLITS:
        tasks = first_tasks(world, split, count)
        entries[f"tasks of {split}"] = _digest([_plain(task) for task in tasks])
        for task in tasks:
            for baseline in policies(world):
                entries[f"{task.id} by {baseline}"] = _digest(play_episode(task, baseline).as_json())
    return entries


def digests_elsewhere(
    world: str, parameters: Mapping[str, Any], count: int, seed: int, hash_seed: str
) -> dict[str, str]:
    """The result of `digests` in a new process with this one's module search path and the given hash seed.

    What differs is not a function of the seed. Raises Broken when the world cannot be made or played there, and
    subprocess.TimeoutExpired after `SECONDS`.
    """
    arguments = [world, json.dumps(dict(parameters)), "--count", str(count), "--seed", str(seed)]
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    process = subprocess.run(
        [sys.executable, "-m", "turnwise.checking", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=SECONDS,
        check=False,
    )
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise Broken(f"the world must be playable in another process; there {world} ended with: {last}")
    entries: dict[str, str] = json.loads(process.stdout.strip().splitlines()[-1])
    return entries


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _plain(content: Any) -> Any:
    """Data classes, mappings and sequences as JSON types. `asdict` would refuse a read-only mapping."""
    if hasattr(content, "__dataclass_fields__"):
        return {name: _plain(getattr(content, name)) for name in content.__dataclass_fields__}
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return content
