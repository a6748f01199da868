"""A world under examination: its tasks, and the episodes that several checks look at, played once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from turnwise.checking.playing import PlayedEpisode, first_tasks, open_episode, play
from turnwise.checking.report import Broken
from turnwise.world import SPLITS, Environment, Observation, Split, Task, World


class Subject:
    """One world, how it was made, and how much of it is to be looked at. Nothing is played before it is needed."""

    def __init__(self, world: World, parameters: Mapping[str, Any], count: int, seed: int, sample_size: int) -> None:
        self.world = world
        self.parameters = parameters
        self.count = count
        self.sample_size = sample_size
        self.seed = seed
        self._played: dict[tuple[Split, str, str], PlayedEpisode] = {}

    @cached_property
    def panels(self) -> dict[Split, list[Task]]:
        """The first `count` tasks of each split, or fewer where there are fewer."""
        return {split: first_tasks(self.world, split, self.count) for split in SPLITS}

    @cached_property
    def first_observations(self) -> dict[str, Observation]:
        """The first observation of every task, by its id."""
        found = {}
        for task in (task for tasks in self.panels.values() for task in tasks):
            with self.reached(task, ()) as (_, observation):
                found[task.id] = observation
        return found

    @property
    def sample(self) -> list[Task]:
        """The few tasks, of every split, that are played again and again."""
        return [task for tasks in self.panels.values() for task in tasks[: self.sample_size]]

    @property
    def has_oracle(self) -> bool:
        """Whether somebody knows what to do in this world."""
        return "oracle" in self.world.players

    @property
    def guide(self) -> str:
        """The player whose actions lead into an episode: the oracle, or the random player where there is none."""
        return "oracle" if self.has_oracle else "random"

    def play(self, task: Task, player: str, *, ask_the_oracle: bool = False) -> PlayedEpisode:
        """A new episode: see `episodes.play`."""
        return play(self.world, task, self.seed, player, ask_the_oracle=ask_the_oracle)

    def played(self, task: Task, player: str) -> PlayedEpisode:
        """The episode that others of this task and player are compared with: the first one, played once."""
        key = (task.split, task.id, player)
        if key not in self._played:
            self._played[key] = self.play(task, player)
        return self._played[key]

    def guided(self, task: Task) -> PlayedEpisode:
        """The guide's episode. Raises Broken where it offers no action."""
        episode = self.played(task, self.guide)
        if not episode.actions:
            raise Broken(f"the {self.guide} player must offer an action to begin with; found none at {task.id}")
        return episode

    def episodes(self, player: str) -> list[PlayedEpisode]:
        """One episode of a player on each task of the test panel."""
        return [self.played(task, player) for task in self.panels["test"]]

    def success(self, player: str) -> float:
        """The share of the test panel that a player solves."""
        episodes = self.episodes(player)
        return sum(episode.success for episode in episodes) / len(episodes)

    @property
    def all_episodes(self) -> list[PlayedEpisode]:
        """The episodes of every player on the test panel."""
        return [episode for player in self.world.players for episode in self.episodes(player)]

    @contextmanager
    def reached(self, task: Task, actions: Sequence[str]) -> Iterator[tuple[Environment, Observation]]:
        """A fresh environment after these actions, and the last observation; it is closed on leaving."""
        with closing(open_episode(self.world, task, self.seed)) as environment:
            observation = environment.reset()
            for action in actions:
                observation = environment.step(action).observation
            yield environment, observation
