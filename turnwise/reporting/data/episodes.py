"""Episodes to look at: whose they are and when they were played, which of them are wanted, and how many fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.reporting.data.report_data import Sample

Occasion = Literal["training", "validation", "test"]
OCCASIONS: tuple[Occasion, ...] = ("training", "validation", "test")


@dataclass(frozen=True)
class ShownEpisode:
    """One trajectory with what a person asks for first: who played it, on which panel, after how many iterations."""

    player: str
    """The name of a run (`mt-grpo seed 1`), of a scripted player, or `warm start`."""
    occasion: Occasion
    iteration: int | None
    """How many batches the policy had learned from; in training, the batch that this episode is part of. None for a
    scripted player, who learns nothing."""
    mode: str
    """`sampled` or `greedy`."""
    sample: Sample

    @property
    def task(self) -> str:
        """The task's id: episodes of one task stand beside each other."""
        return self.sample.trajectory.task.id

    @property
    def world(self) -> str:
        """The world that the task is of; of a mixture, the one that it mixed in."""
        task = self.sample.trajectory.task
        return str(task.tags.get("world", task.world))

    @property
    def ending(self) -> str:
        """How it ended."""
        return self.sample.trajectory.ending.value

    @property
    def when(self) -> str:
        """The occasion in words: `training batch 20`, `test panel after 20 iterations, greedy`."""
        if self.occasion == "training":
            return f"training batch {self.iteration}"
        after = "" if self.iteration is None else f" after {self.iteration} iterations"
        return f"{self.occasion} panel{after}, {self.mode}"


@dataclass(frozen=True)
class Wanted:
    """Which episodes are asked for: all that agree with every part that is given."""

    success: bool | None = None
    world: str | None = None
    ending: str | None = None
    task: str | None = None
    occasion: Occasion | None = None
    mode: str | None = None
    iterations: tuple[int, int] | None = None
    """First and last, both included. A scripted player has none and is always included."""
    advantage: tuple[float, float] | None = None
    """Lowest and highest: the advantage of one turn at least lies between, both included."""

    def includes(self, episode: ShownEpisode) -> bool:
        """Whether the episode agrees with every part that is given."""
        trajectory = episode.sample.trajectory
        return (
            self.success in (None, trajectory.success)
            and self.world in (None, episode.world)
            and self.ending in (None, episode.ending)
            and self.task in (None, episode.task)
            and self.occasion in (None, episode.occasion)
            and self.mode in (None, episode.mode)
            and self.includes_iteration(episode.iteration)
            and self._includes_an_advantage(episode.sample.advantages)
        )

    def includes_iteration(self, iteration: int | None) -> bool:
        """Whether episodes of this iteration are asked for: what is not need not be read."""
        return self.iterations is None or iteration is None or self.iterations[0] <= iteration <= self.iterations[1]

    def _includes_an_advantage(self, advantages: Sequence[float] | None) -> bool:
        if self.advantage is None:
            return True
        low, high = self.advantage
        return any(low <= value <= high for value in advantages or ())


def by_task(episodes: Iterable[ShownEpisode]) -> dict[str, list[ShownEpisode]]:
    """The episodes of each task, tasks and episodes in the order in which they come."""
    tasks: dict[str, list[ShownEpisode]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, []).append(episode)
    return tasks


def over_iterations(episodes: Iterable[ShownEpisode]) -> list[ShownEpisode]:
    """Of each task one episode per player, occasion, iteration and mode, the first: how it was played as learning went
    on, and not how often.
    """
    first: dict[tuple[object, ...], ShownEpisode] = {}
    for episode in episodes:
        first.setdefault((episode.task, episode.player, episode.occasion, episode.mode, episode.iteration), episode)
    return list(first.values())


def whole_tasks(episodes: Iterable[ShownEpisode], limit: int) -> list[ShownEpisode]:
    """As many tasks with all their episodes as fit into `limit`, in order; of the first task `limit` episodes at most.

    A task is shown whole, since its episodes are there to be compared with each other.
    """
    chosen: list[ShownEpisode] = []
    for of_task in by_task(episodes).values():
        if chosen and len(chosen) + len(of_task) > limit:
            break
        chosen += of_task[:limit]
    return chosen
