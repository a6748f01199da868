"""Episodes for inspection: their policy and iteration, filters, and limits on how many are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.results.report_data import Sample

Occasion = Literal["training", "validation", "test"]
OCCASIONS: tuple[Occasion, ...] = ("training", "validation", "test")


@dataclass(frozen=True)
class ShownEpisode:
    """One trajectory with its origin: the policy, the task set, and the number of training iterations."""

    policy: str
    """The name of a run (`mt-grpo seed 1`), of a baseline policy, or `warm start`."""
    occasion: Occasion
    iteration: int | None
    """Number of batches that the policy had been trained on; in training, the number of the batch that contains this
    episode. None for a baseline policy, which is not trained."""
    mode: str
    """How replies were chosen: `sampled` or `greedy`."""
    sample: Sample

    @property
    def task(self) -> str:
        """The task's id; episodes of one task are shown next to each other."""
        return self.sample.trajectory.task.id

    @property
    def world(self) -> str:
        """The name of the task's world; for a mixture of worlds, the component that the task comes from."""
        task = self.sample.trajectory.task
        return str(task.tags.get("world", task.world))

    @property
    def ending(self) -> str:
        """How the episode ended, a value of `turnwise.data.trajectory.Ending`."""
        return self.sample.trajectory.ending.value

    @property
    def when(self) -> str:
        """The occasion as text: `training batch 20`, `test task set after 20 iterations, greedy`."""
        if self.occasion == "training":
            return f"training batch {self.iteration}"
        count = "1 iteration" if self.iteration == 1 else f"{self.iteration} iterations"
        after = "" if self.iteration is None else f" after {count}"
        return f"{self.occasion} task set{after}, {self.mode}"


@dataclass(frozen=True)
class Wanted:
    """A filter of episodes: an episode must match every field that is not None."""

    success: bool | None = None
    world: str | None = None
    ending: str | None = None
    task: str | None = None
    occasion: Occasion | None = None
    mode: str | None = None
    iterations: tuple[int, int] | None = None
    """First and last iteration, both included. Baseline policies have no iteration and always match."""
    advantage: tuple[float, float] | None = None
    """Lowest and highest: at least one turn must have an advantage in this closed range."""

    def includes(self, episode: ShownEpisode) -> bool:
        """Whether the episode matches every field that is not None."""
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
        """Whether episodes of this iteration can match; records of other iterations need not be read."""
        return self.iterations is None or iteration is None or self.iterations[0] <= iteration <= self.iterations[1]

    def _includes_an_advantage(self, advantages: Sequence[float] | None) -> bool:
        if self.advantage is None:
            return True
        low, high = self.advantage
        return any(low <= value <= high for value in advantages or ())


def by_task(episodes: Iterable[ShownEpisode]) -> dict[str, list[ShownEpisode]]:
    """The episodes grouped by task id; tasks and episodes keep the order of the input."""
    tasks: dict[str, list[ShownEpisode]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task, []).append(episode)
    return tasks


def over_iterations(episodes: Iterable[ShownEpisode]) -> list[ShownEpisode]:
    """The first episode for each combination of task, policy, occasion, mode and iteration.

    It shows how a task was played over the course of training, without repetitions.
    """
    first: dict[tuple[object, ...], ShownEpisode] = {}
    for episode in episodes:
        first.setdefault((episode.task, episode.policy, episode.occasion, episode.mode, episode.iteration), episode)
    return list(first.values())


def whole_tasks(episodes: Iterable[ShownEpisode], limit: int) -> list[ShownEpisode]:
    """The first tasks with all their episodes, at most `limit` episodes; the first task is cut to `limit`.

    Tasks are kept whole because their episodes are meant to be compared with each other.
    """
    selected: list[ShownEpisode] = []
    for task_episodes in by_task(episodes).values():
        if selected and len(selected) + len(task_episodes) > limit:
            break
        selected += task_episodes[:limit]
    return selected
