"""The world under test: its tasks, and a cache of the episodes that several checks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from turnwise import progress, seeding
from turnwise.checking.playing import PROBE, PlayedEpisode, first_tasks, open_episode, play, policies
from turnwise.checking.report import Broken, NotApplicable
from turnwise.world import SPLITS, Environment, Observation, Split, Task, World


class Subject:
    """A world, its parameters, and how many tasks to look at. Episodes are played when first needed."""

    def __init__(self, world: World, parameters: Mapping[str, Any], count: int, seed: int, sample_size: int) -> None:
        self.world = world
        self.parameters = parameters
        self.count = count
        self.sample_size = sample_size
        self.seed = seed
        self.has_oracle = "oracle" in world.baselines
        self.policies = policies(world)
        """The policies that are played: the world's baseline policies, or the probe if there are none."""
        self.check = ""
        """The check that runs now, as reports of progress name it."""
        self._played: dict[tuple[Split, str, str], PlayedEpisode] = {}

    @cached_property
    def task_sets(self) -> dict[Split, list[Task]]:
        """The task sets: the first `count` tasks of each split, or all tasks of a smaller split."""
        return {split: first_tasks(self.world, split, self.count) for split in SPLITS}

    @cached_property
    def first_observations(self) -> dict[str, Observation]:
        """The first observation of every task, by task id."""
        observations = {}
        for task in progress.each(self.check, [task for tasks in self.task_sets.values() for task in tasks]):
            with self.reached(task, ()) as (_, observation):
                observations[task.id] = observation
        return observations

    @property
    def sample(self) -> list[Task]:
        """The first `sample_size` tasks of every split, on which whole episodes are compared."""
        return [task for tasks in self.task_sets.values() for task in tasks[: self.sample_size]]

    @property
    def guide(self) -> str:
        """The policy whose actions are used as prefixes: the oracle, else the random policy, else the probe."""
        return next(name for name in ("oracle", "random", PROBE) if name in self.policies)

    @property
    def wanderer(self) -> str:
        """The policy whose episodes are compared: the random policy, or the guide if there is none."""
        return "random" if "random" in self.policies else self.guide

    def play(self, task: Task, baseline: str, *, ask_the_oracle: bool = False) -> PlayedEpisode:
        """Play a new episode: see `playing.play`."""
        return play(self.world, task, self.seed, baseline, ask_the_oracle=ask_the_oracle)

    def played(self, task: Task, baseline: str) -> PlayedEpisode:
        """The cached reference episode of this task and policy; it is played at the first call."""
        key = (task.split, task.id, baseline)
        if key not in self._played:
            self._played[key] = self.play(task, baseline)
        return self._played[key]

    def guided(self, task: Task) -> PlayedEpisode:
        """The cached episode of the guide policy. Raises Broken if it has no action."""
        episode = self.played(task, self.guide)
        if not episode.actions:
            raise Broken(f"the {self.guide} baseline must offer an action to begin with; found none at {task.id}")
        return episode

    def episodes(self, baseline: str) -> list[PlayedEpisode]:
        """One episode of a policy on each task of the test task set."""
        return [self.played(task, baseline) for task in progress.each(self.check, self.task_sets["test"])]

    def random_groups(self, groups: int, size: int) -> list[list[PlayedEpisode]]:
        """Groups of `size` episodes of the random policy, each on one of the first `groups` test tasks.

        The first episode of each is the one that other checks look at; the others have seeds of their own. Raises
        NotApplicable for a world without a random policy.
        """
        if "random" not in self.world.baselines:
            raise NotApplicable("the world has no random baseline policy")
        seeds = [seeding.derive(self.seed, "random group", replica) for replica in range(1, size)]
        return [
            [self.played(task, "random"), *(play(self.world, task, seed, "random") for seed in seeds)]
            for task in progress.each(self.check, self.task_sets["test"][:groups])
        ]

    def success(self, baseline: str) -> float:
        """The share (0 to 1) of the test task set that a baseline policy solves. Raises Broken if it has no task."""
        episodes = self.episodes(baseline)
        if not episodes:
            raise Broken("there must be at least one test task; found none")
        return sum(episode.success for episode in episodes) / len(episodes)

    @property
    def all_episodes(self) -> list[PlayedEpisode]:
        """The episodes of every policy on the test task set."""
        return [episode for baseline in self.policies for episode in self.episodes(baseline)]

    @contextmanager
    def reached(self, task: Task, actions: Sequence[str]) -> Iterator[tuple[Environment, Observation]]:
        """A fresh environment after `actions`, and its last observation; closed when the block ends."""
        with closing(open_episode(self.world, task, self.seed)) as environment:
            observation = environment.reset()
            for action in actions:
                observation = environment.step(action).observation
            yield environment, observation
