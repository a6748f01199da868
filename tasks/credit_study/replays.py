"""Replays: a policy's episodes on the validation task set, and many continuations from every state of them."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SAMPLING, playing_code, playing_reads, sampled_policy, save_rollout
from turnwise import seeding
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.loop import episode_seed
from turnwise.agent.playing import PlayParameters, recorded_by, worlds_seed
from turnwise.agent.replay import Continuation, Point, points
from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE, independent, play_episodes
from turnwise.config.model_settings import Compute
from turnwise.data.metrics import episode_means
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import TRAJECTORIES, read_trajectories
from turnwise.store import Reference, default_store


class EpisodesParameters(PlayParameters):
    """The parameters of the episodes."""

    compute: Compute
    tasks: int
    """Number of tasks, taken from the start of the validation task set."""
    replicas: int
    temperature: float
    seed: int


@task(name="study_episodes", task_run_name="{label}: study_episodes", retries=1)
@depends_on(kernel=(*SAMPLING, "turnwise.data.metrics"), writes=TRAJECTORIES, code=playing_code, reads=playing_reads)
def study_episodes(
    parameters: EpisodesParameters,
    *,
    policy: Reference,
    tokenizer: Reference,
    task_set: Reference,
    label: str = "credit study",
) -> Reference:
    """Sample a group of episodes of each task, as in training."""
    metric_names = recorded_by(parameters)
    tasks = tasks_of(task_set, "validation")[: parameters.tasks]
    rollout = play_episodes(
        parameters,
        parameters.compute,
        independent(tasks, parameters.replicas, parameters.seed),
        policy=sampled_policy(policy),
        tokenizer=default_store().folder(tokenizer),
        temperature=parameters.temperature,
        seed=parameters.seed,
        what="sampling",
    )
    with default_store().write("rollout") as draft:
        draft.metrics.update(episode_means(save_rollout(draft, rollout), len(rollout.lost), metric_names))
        draft.metrics["lost_episodes"] = len(rollout.lost)
    default_store().record_clock(draft.reference, rollout.seconds)
    return draft.reference


class ReplaysParameters(PlayParameters):
    """The parameters of the replays."""

    compute: Compute
    group: int
    """The number of the task whose episodes are played on."""
    replays: int
    """Number of continuations from each state."""
    temperature: float
    seed: int
    """The seed of the episodes, from which their worlds' noise is reproduced."""


@task(name="replays", task_run_name="{label}: replays", retries=1)
@depends_on(kernel=(*SAMPLING, "turnwise.agent.replay"), writes=TRAJECTORIES, code=playing_code, reads=playing_reads)
def replays(
    parameters: ReplaysParameters,
    *,
    policy: Reference,
    tokenizer: Reference,
    episodes: Reference,
    label: str = "credit study",
) -> Reference:
    """Sample continuations from the state before every turn of one task's episodes.

    `group` of a continuation is the number of its state among those of all episodes, see `states`.
    """
    numbered_states = enumerate(states(read_trajectories(default_store().folder(episodes)), parameters.seed))
    task_states = [(number, point) for number, point in numbered_states if point.trajectory.group == parameters.group]

    def make(rules: EpisodeConfig) -> list[Continuation]:
        return [
            Continuation(rules, point, number, replica)
            for number, point in task_states
            for replica in range(parameters.replays)
        ]

    rollout = play_episodes(
        parameters,
        parameters.compute,
        make,
        policy=sampled_policy(policy),
        tokenizer=default_store().folder(tokenizer),
        temperature=parameters.temperature,
        seed=seeding.derive(parameters.seed, "replays"),
        what="replaying",
        most_at_once=MOST_EPISODES_AT_ONCE,
    )
    with default_store().write("replays") as draft:
        save_rollout(draft, rollout)
        draft.metrics.update(states=len(task_states), continuations=len(rollout.trajectories), lost=len(rollout.lost))
        draft.metrics["sampled_tokens"] = rollout.seconds["sampled_tokens"]
    default_store().record_clock(draft.reference, rollout.seconds)
    return draft.reference


def states(trajectories: Sequence[Trajectory], seed: int) -> list[Point]:
    """The states before all turns of all trajectories, in order; `seed` is that of the episodes."""
    noise_seed = worlds_seed(seed)
    return [
        point
        for trajectory in trajectories
        for point in points(trajectory, episode_seed(noise_seed, trajectory.group, trajectory.replica))
    ]
