"""Rollout: the policy plays a group of episodes of each task that this iteration draws."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.playing import PlayParameters, play_with_policy, save_played, tasks_of, world_code
from tasks.stage import stage
from turnwise import seeding
from turnwise.artifacts import Reference, default_store
from turnwise.measures import episode_means
from turnwise.sections import Compute
from turnwise.world import Task


class RolloutParameters(PlayParameters):
    """What a rollout reads. Rewards' weights are not among it: they change the credit, not the episodes."""

    compute: Compute
    prompts: int
    group_size: int
    temperature: float
    seed: int
    iteration: int


def drawn_tasks(tasks: Sequence[Task], count: int, seed: int, iteration: int) -> list[Task]:
    """The tasks of one iteration: `count` different ones, a function of the seed and the iteration number alone."""
    order = seeding.generator(seed, "tasks", iteration).permutation(len(tasks))
    return [tasks[index] for index in order[:count]]


@stage("rollout", retries=1, code=world_code)
def rollout(parameters: RolloutParameters, *, policy: Reference, tokenizer: Reference, panels: Reference) -> Reference:
    """The trajectories of one iteration, with the behaviour policy's log-probabilities."""
    tasks = tasks_of(panels, "train")
    played = play_with_policy(
        parameters,
        parameters.compute,
        drawn_tasks(tasks, parameters.prompts, parameters.seed, parameters.iteration),
        parameters.group_size,
        policy=default_store().folder(policy),
        digest=policy.digest,
        tokenizer=tokenizer,
        temperature=parameters.temperature,
        seed=seeding.derive(parameters.seed, "rollout", parameters.iteration),
        what="sampling",
    )
    with default_store().write("rollout") as draft:
        draft.metrics.update(episode_means(save_played(draft, played)))
        draft.metrics["lost_episodes"] = len(played.lost)
    default_store().record_clock(draft.reference, played.seconds)
    return draft.reference
