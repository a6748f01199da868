"""Scores of the baseline policies on a test task set, as a reference for any trained policy.

Those of every world are recorded as JSON, with one line for each world, setting and policy.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from turnwise import progress, seeding
from turnwise.checking.playing import PlayedEpisode, first_tasks, play
from turnwise.statistics import Interval, over_tasks
from turnwise.world import World


@dataclass(frozen=True)
class Score:
    """One scripted policy on one task set: means over its tasks, with confidence intervals."""

    baseline: str
    tasks: int
    episodes: int
    success: Interval
    rewards: Interval
    """The return: the world's rewards with the world's own weights, summed over an episode."""
    turns: Interval


def score(world: World, baseline: str, episodes: int, seed: int) -> Score:
    """Play at least `episodes` episodes on the world's own test tasks, each task equally often, and average them.

    A split smaller than `episodes` is played several times, with new world noise and new random decisions each time.
    """
    tasks = first_tasks(world, "test", episodes)
    replicas = -(-episodes // len(tasks))
    groups = [
        [play(world, task, seeding.derive(seed, "baseline", replica), baseline) for replica in range(replicas)]
        for task in progress.each(f"{world.name} {baseline}: test tasks", tasks)
    ]
    return score_of(world, baseline, groups, seed)


def score_of(world: World, policy: str, groups: Sequence[Sequence[PlayedEpisode]], seed: int) -> Score:
    """The score of a scripted policy's episodes, as many of each task. `seed` is that of the bootstrap."""

    def mean(value: Callable[[PlayedEpisode], float], *, proportion: bool = False) -> Interval:
        task_means = [sum(map(value, episodes)) / len(episodes) for episodes in groups]
        return over_tasks(task_means, seed=seed, proportion=proportion)

    return Score(
        policy,
        len(groups),
        sum(map(len, groups)),
        success=mean(lambda episode: float(episode.success), proportion=True),
        rewards=mean(lambda episode: weighted_return(world, episode)),
        turns=mean(lambda episode: float(len(episode.turns))),
    )


def weighted_return(world: World, episode: PlayedEpisode) -> float:
    """The sum of an episode's rewards, each with the world's own weight."""
    return sum(world.rewards[name].weight * value for step in episode.steps for name, value in step.rewards.items())


RECORD_FILE = "baselines.json"


@dataclass(frozen=True)
class BaselineRow:
    """The record of one baseline policy in one world and setting."""

    world: str
    version: str
    setting: str
    """A preset's name; empty: the world's defaults."""
    code: str
    """Digest of the code that computed the line; if it differs from today's, the line is out of date."""
    uniform: str
    """What the world's random policy draws from uniformly, in the world's own words."""
    score: Score

    @property
    def key(self) -> tuple[str, str, str]:
        """(world, setting, policy); the record has one line for each."""
        return (self.world, self.setting, self.score.baseline)


def recorded_baselines(folder: Path) -> list[BaselineRow]:
    """The recorded lines of the baseline policies in a folder; empty if there is no record."""
    path = folder / RECORD_FILE
    return read_lines(path.read_text(encoding="utf-8")) if path.is_file() else []


def read_lines(text: str) -> list[BaselineRow]:
    """The record that `json_lines` wrote. Raises pydantic's ValidationError for other text."""
    return TypeAdapter(list[BaselineRow]).validate_json(text)


def json_lines(record: Sequence[Any]) -> str:
    """Data classes as a JSON list with one line for each, so that a diff shows only the records that changed."""
    rows = ",\n".join(json.dumps(dataclasses.asdict(line), ensure_ascii=False, allow_nan=False) for line in record)
    return f"[\n{rows}\n]\n"
