"""Small artifacts for the tests of stages, which call the plain function of a stage, without Prefect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from tasks.rollout.rollout import RolloutParameters, rollout
from turnwise.agent.playing import PlayParameters
from turnwise.config.model_settings import Compute
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.data.trajectory_files import read_trajectories, write_trajectories
from turnwise.experiment import Experiment, load
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import play_parameters
from turnwise.world import Split, Task

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "end_to_end" / "tiny.yaml"


@dataclass(frozen=True)
class Small:
    """The tiny experiment on a frozen lake without slip, and the artifacts of its preparation."""

    experiment: Experiment
    task_sets: Mapping[Split, Reference]
    """Six tasks of each split."""
    demonstrations: Reference
    """Of twelve episodes by the oracle, without noise."""
    tokenizer: Reference
    policy: Reference
    """An initial policy that has learned nothing."""
    rollout: Reference
    """Three episodes of each of two tasks, sampled by that policy."""

    @property
    def play(self) -> PlayParameters:
        """The parameters of every stage that plays."""
        return play_parameters(self.experiment)


def tiny(**settings: object) -> Experiment:
    """The tiny experiment of the end-to-end tests, smaller still, with these settings."""
    return load(
        ROOT / "params.yaml", [TINY], {"policy.hidden": 32, "policy.layers": 1, "agent.context_tokens": 320, **settings}
    )


def rollout_parameters(play: PlayParameters, compute: Compute, **changes: Any) -> RolloutParameters:
    """Those of a small independent rollout, unless `changes` say otherwise."""
    sampled = {"scheme": "independent", "prompts": 2, "group_size": 3, "temperature": 1.0, "horizon": None}
    numbered = {"seed": 5, "iteration": 1, "round": 0}
    return RolloutParameters(**{**dict(play), "compute": compute, **sampled, **numbered, **changes})


def rolled_out(small: Small, policy: Reference | None = None, **changes: Any) -> Reference:
    """A small rollout of the small policy, or of another one."""
    made: Reference = rollout.fn(
        rollout_parameters(small.play, **{"compute": small.experiment.compute, **changes}),
        policy=policy or small.policy,
        tokenizer=small.tokenizer,
        task_set=small.task_sets["train"],
    )
    return made


def turn(
    rewards: Mapping[str, float] | None = None, tokens: int = 3, log_probability: float = -1.0, **named: Any
) -> Turn:
    """A turn with a reply of so many tokens after an observation of two."""
    reply, log_probabilities = (9,) * tokens, (log_probability,) * tokens
    return Turn("seen", (7, 7), "said", reply, log_probabilities, actions=("Left",), rewards=rewards or {}, **named)


def trajectory(
    group: int, replica: int, turns: Sequence[Turn], ending: Ending = Ending.FAILURE, task: str | None = None
) -> Trajectory:
    """An episode of the group's task."""
    name = task or f"lake/{group}"
    return Trajectory(Task("frozen_lake", name, "train", group), group, replica, tuple(turns), ending, "the end")


def saved(trajectories: Sequence[Trajectory], kind: str = "rollout", **metrics: float) -> Reference:
    """An artifact of these trajectories, as a rollout leaves it."""
    with default_store().write(kind) as draft:
        write_trajectories(draft.folder, trajectories)
        draft.metrics.update({"lost_episodes": 0.0, **metrics})
    return draft.reference


def rewarded(rollout: Reference, reward: Callable[[Trajectory], float]) -> Reference:
    """The episodes of a rollout, with this reward for the goal at their last turns and no other."""

    def paid(episode: Trajectory) -> Trajectory:
        *turns, last = (replace(each, rewards={}) for each in episode.turns)
        return replace(episode, turns=(*turns, replace(last, rewards={"goal": reward(episode)})))

    return saved([paid(each) for each in read_trajectories(default_store().folder(rollout))])


def rows(reference: Reference, file: str) -> list[dict[str, Any]]:
    """The rows of a Parquet file of an artifact."""
    found: list[dict[str, Any]] = parquet.read_table(default_store().folder(reference) / file).to_pylist()
    return found
