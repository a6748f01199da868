"""The results of a variant's runs on the tasks of a task set, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.statistics.mean import mean


@dataclass(frozen=True)
class Results:
    """The results of one variant, or of one fixed policy: a value per run and task.

    Raises ValueError without runs, and for a run without tasks.
    """

    runs: Mapping[int, Mapping[str, float]]
    """By seed, in order: the mean over replicas of each task, by task id. Tasks whose episodes were lost are absent."""

    def __post_init__(self) -> None:
        if not self.runs or not all(self.runs.values()):
            found = {seed: len(tasks) for seed, tasks in self.runs.items()}
            raise ValueError(f"results must hold a run at least, and each run a task; found tasks by seed: {found}")

    @property
    def means(self) -> dict[int, float]:
        """The mean of each run over its tasks, by seed."""
        return {seed: mean(tasks.values()) for seed, tasks in self.runs.items()}

    @property
    def tasks(self) -> list[str]:
        """The ids of the tasks that every run has, in the order of the first run."""
        first, *others = self.runs.values()
        return [task for task in first if all(task in tasks for tasks in others)]

    def table(self, tasks: Sequence[str], seeds: Sequence[int] | None = None) -> np.ndarray:
        """The values of these tasks as an array [seeds, tasks]; `seeds` selects the runs, None: all."""
        chosen = list(self.runs) if seeds is None else seeds
        return np.array([[self.runs[seed][task] for task in tasks] for seed in chosen], dtype=np.float64)


def common_tasks(first: Results, second: Results) -> list[str]:
    """The ids of the tasks that every run of both has, in the order of the first."""
    others = set(second.tasks)
    return [task for task in first.tasks if task in others]
