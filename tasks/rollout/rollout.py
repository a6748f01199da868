"""Rollout: the policy plays a group of episodes of each task that is drawn for this iteration.

With the scheme `branching`, further groups start from the states of one of these episodes; with `tree`, most of a
group's episodes start from states of its others (`turnwise.agent.branching`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SAMPLING, playing_code, playing_reads, sampled_policy, save_rollout
from tasks.restoring import opened
from turnwise import seeding
from turnwise.agent.branching_rollout import Scheme, play_groups, rollout_metrics
from turnwise.agent.playing import PlayParameters, recorded_by
from turnwise.agent.sampling import play_episodes
from turnwise.config.model_settings import Compute
from turnwise.config.schema import Section
from turnwise.data.metrics import RECORDED, episode_means
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import TRAJECTORIES, read_trajectories, write_trajectories
from turnwise.store import Reference, default_store
from turnwise.world import Task


class RolloutParameters(PlayParameters):
    """The parameters of a rollout. Reward weights are not among them: they change the credit, not the episodes."""

    compute: Compute
    scheme: Scheme
    prompts: int
    group_size: int
    branches: int | None = None
    """The trajectories of a tree of the scheme `tree`; None for another scheme."""
    temperature: float
    horizon: int | None
    """The turn limit that the curriculum sets; None: only the world's own."""
    seed: int
    iteration: int
    round: int
    """0-based round within the iteration; above 0 where a group selection has asked for more groups."""


def drawn_tasks(tasks: Sequence[Task], count: int, seed: int, iteration: int, round: int = 0) -> list[Task]:
    """Draw `count` different tasks for one round; they depend on the seed, the iteration and the round alone.

    Tasks repeat, within a round or between rounds of an iteration, only once every task has been drawn.
    """
    # By iteration alone: the rounds of one iteration take different tasks, and a resumed run takes the same.
    order = seeding.generator(seed, "tasks", iteration).permutation(len(tasks))
    return [tasks[order[place % len(tasks)]] for place in range(round * count, (round + 1) * count)]


@task(name="rollout", task_run_name="{label}: rollout", retries=1)
@depends_on(
    kernel=(*SAMPLING, "turnwise.agent.branching", "turnwise.agent.branching_rollout", "turnwise.data.metrics"),
    writes=TRAJECTORIES,
    code=playing_code,
    reads=playing_reads,
)
def rollout(
    parameters: RolloutParameters,
    *,
    policy: Reference,
    tokenizer: Reference,
    task_set: Reference,
    label: str = "rollout",
) -> Reference:
    """Sample the trajectories of one iteration, with the behaviour policy's log-probabilities (nats)."""
    tasks = drawn_tasks(
        tasks_of(task_set, "train"), parameters.prompts, parameters.seed, parameters.iteration, parameters.round
    )
    # The first round has the seed of a run without rounds, so both share its artifact.
    seed = seeding.derive(
        parameters.seed, "rollout", parameters.iteration, *([parameters.round] * (parameters.round > 0))
    )
    metric_names = recorded_by(parameters)
    play = partial(
        play_episodes,
        parameters,
        parameters.compute,
        policy=sampled_policy(policy),
        tokenizer=default_store().folder(tokenizer),
        temperature=parameters.temperature,
        horizon=parameters.horizon,
    )
    rollout_result = play_groups(play, parameters.scheme, tasks, parameters.group_size, parameters.branches, seed)
    with default_store().write("rollout") as draft:
        save_rollout(draft, rollout_result)
        draft.metrics.update(rollout_metrics(rollout_result, parameters.scheme, parameters.prompts, metric_names))
        draft.metrics["lost_episodes"] = len(rollout_result.lost)
    default_store().record_clock(draft.reference, rollout_result.seconds)
    return draft.reference


class GatherParameters(Section):
    """Gathering has no parameters: it depends on its inputs alone."""


@task(name="gather", task_run_name="{label}: gather", retries=1)
@depends_on(kernel=("turnwise.data.metrics",), writes=TRAJECTORIES, platform_bound=False)
def gather(parameters: GatherParameters, *, rollouts: list[Reference], label: str = "gather") -> Reference:
    """Concatenate several rounds into one rollout, with groups renumbered consecutively.

    The reasons why episodes were lost stay with the artifacts of the rounds.
    """
    trajectories: list[Trajectory] = []
    for reference in rollouts:
        # Groups are compared within themselves, so two rounds must not share a number.
        first = 1 + max((trajectory.group for trajectory in trajectories), default=-1)
        trajectories_of_round = read_trajectories(opened(reference))
        trajectories += [replace(trajectory, group=first + trajectory.group) for trajectory in trajectories_of_round]
    with default_store().write("rollout") as draft:
        write_trajectories(draft.folder, trajectories)
        round_metrics = [default_store().metrics(round) for round in rollouts]
        lost_episodes = sum(int(metrics["lost_episodes"]) for metrics in round_metrics)
        metric_names = {name for round in round_metrics for name in round if name.startswith(RECORDED)}
        draft.metrics.update(episode_means(trajectories, lost_episodes, metric_names), lost_episodes=lost_episodes)
        draft.metrics["rounds"] = len(rollouts)
    # `seconds` is left to this stage's own: the rounds' are counted where they were sampled.
    clocks = [default_store().clock(reference) for reference in rollouts]
    names = dict.fromkeys(name for clock in clocks for name in clock if name != "seconds")
    default_store().record_clock(
        draft.reference, {name: sum(clock.get(name, 0.0) for clock in clocks) for name in names}
    )
    return draft.reference
