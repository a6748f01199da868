"""What is compared: the results of a variant's runs on the tasks of a task set, and their reference points.

Scores are normalised by the two baseline policies, random actions and the oracle:

    normalised = (score - random) / (oracle - random)

0 is the random policy and 1 the oracle, which knows the answer: so success rates in different worlds and on different
task sets become comparable (Bellemare et al. 2013 on Atari). Both baselines were run on the same task set as the score,
and their means are treated as exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.statistics.interval import Interval, mean


@dataclass(frozen=True)
class Results:
    """The results of one variant, or of one fixed policy: a value per run and task.

    Raises ValueError without runs, and for a run without tasks.
    """

    runs: Mapping[int, Mapping[str, float]]
    """By seed, in order: the mean over replicas of each task, by task id. Tasks whose episodes were lost are absent."""

    def __post_init__(self) -> None:
        if not self.runs or not all(self.runs.values()):
            counts = {seed: len(tasks) for seed, tasks in self.runs.items()}
            raise ValueError(f"results must hold a run at least, and each run a task; found tasks by seed: {counts}")

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
        selected = list(self.runs) if seeds is None else seeds
        return np.array([[self.runs[seed][task] for task in tasks] for seed in selected], dtype=np.float64)


def common_tasks(first: Results, second: Results) -> list[str]:
    """The ids of the tasks that every run of both has, in the order of the first."""
    others = set(second.tasks)
    return [task for task in first.tasks if task in others]


@dataclass(frozen=True)
class ReferencePoints:
    """The reference results of a variant, on the task set that it was tested on."""

    warm_start: Results | None = None
    """The SFT warm start: one policy with a single run, the same for all seeds."""
    random: float | None = None
    """The mean of the world's random baseline policy; None where the world has none."""
    oracle: float | None = None
    """The mean of the world's oracle; None where the world has none."""


def normalised(score: Interval, random: float, oracle: float) -> Interval | None:
    """The score on the scale from random (0) to oracle (1), bounds and sample included.

    None where the oracle is no better than random.
    """
    if oracle <= random:
        return None

    def rescale(value: float) -> float:
        return (value - random) / (oracle - random)

    return replace(
        score,
        value=rescale(score.value),
        low=None if score.low is None else rescale(score.low),
        high=None if score.high is None else rescale(score.high),
        sample=tuple(rescale(value) for value in score.sample),
    )
