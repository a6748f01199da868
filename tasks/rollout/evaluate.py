"""Evaluation: a policy or a scripted baseline on a fixed task set, through the same episode loop."""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SAMPLING, playing_code, playing_reads, sampled_policy, save_rollout
from turnwise import seeding
from turnwise.agent.loop import RolloutResult
from turnwise.agent.playing import PlayParameters, play_with_script, recorded_by, the_world
from turnwise.agent.sampling import independent, play_episodes
from turnwise.config.model_settings import Compute
from turnwise.config.schema import EvaluationSection
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory_files import GREEDY, SAMPLED, TRAJECTORIES
from turnwise.statistics.pass_at_k import evaluation_metrics
from turnwise.store import Draft, Reference, default_store
from turnwise.world import Split, World


class EvaluationParameters(PlayParameters):
    """The parameters of an evaluation of a policy."""

    compute: Compute
    samples: int
    temperature: float
    seed: int
    split: Split
    horizon: int | None
    """A turn limit below the world's own; None: the world's own."""

    @classmethod
    def of(
        cls,
        play: PlayParameters,
        compute: Compute,
        evaluation: EvaluationSection,
        split: Split,
        horizon: int | None = None,
    ) -> EvaluationParameters:
        """Take the keys of the evaluation section, all but how often evaluations are made."""
        return cls.taken_from(evaluation, **dict(play), compute=compute, split=split, horizon=horizon)


@task(name="evaluate", task_run_name="{label}: evaluate", retries=1)
@depends_on(
    kernel=(*SAMPLING, "turnwise.statistics.pass_at_k"),
    writes=TRAJECTORIES,
    code=playing_code,
    reads=playing_reads,
)
def evaluate(
    parameters: EvaluationParameters,
    *,
    policy: Reference,
    tokenizer: Reference,
    task_set: Reference,
    label: str = "evaluate",
) -> Reference:
    """Play one greedy and `samples` sampled episodes per task, saved in the folders `greedy` and `sampled`.

    Metrics are means over episodes; `sampled/pass@k` is the unbiased estimate of pass@k by the world's primary metric.
    """
    tasks = tasks_of(task_set, parameters.split)
    # Before playing: if the world were unreachable afterwards, all episodes were wasted.
    world, metric_names = the_world(parameters.world), recorded_by(parameters)
    clock: dict[str, float] = {}
    with default_store().write("evaluation") as draft:
        for mode, replicas, temperature in ((GREEDY, 1, 0.0), (SAMPLED, parameters.samples, parameters.temperature)):
            # Of neither variant, run nor iteration: all policies meet the same worlds, so differences are paired.
            seed = seeding.derive(parameters.seed, "evaluation", mode)
            rollout = play_episodes(
                parameters,
                parameters.compute,
                independent(tasks, replicas, seed),
                policy=sampled_policy(policy),
                tokenizer=default_store().folder(tokenizer),
                temperature=temperature,
                seed=seed,
                what=f"evaluation: {mode}",
                horizon=parameters.horizon,
            )
            _record(draft, mode, rollout, world, metric_names)
            for name, seconds in rollout.seconds.items():
                clock[name] = clock.get(name, 0.0) + seconds
    default_store().record_clock(draft.reference, clock)
    return draft.reference


class BaselineParameters(PlayParameters):
    """The parameters of an evaluation of a scripted baseline policy."""

    baseline: str
    samples: int
    seed: int
    split: Split


@task(name="baseline", task_run_name="{label}: baseline", retries=1)
@depends_on(
    kernel=("turnwise.agent.playing", "turnwise.statistics.pass_at_k"),
    writes=TRAJECTORIES,
    code=playing_code,
    reads=playing_reads,
)
def baseline(parameters: BaselineParameters, *, task_set: Reference, label: str = "baseline") -> Reference:
    """Play `samples` episodes per task with a scripted baseline policy, saved in the folder `sampled`."""
    tasks = tasks_of(task_set, parameters.split)
    world, metric_names = the_world(parameters.world), recorded_by(parameters)
    rollout = play_with_script(
        parameters, tasks, parameters.samples, lambda episode, turn: parameters.baseline, parameters.seed
    )
    with default_store().write("evaluation") as draft:
        _record(draft, SAMPLED, rollout, world, metric_names)
    default_store().record_clock(draft.reference, rollout.seconds)
    return draft.reference


def _record(draft: Draft, mode: str, rollout: RolloutResult, world: World, metric_names: frozenset[str]) -> None:
    trajectories = save_rollout(draft, rollout, mode)
    metrics = evaluation_metrics(trajectories, len(rollout.lost), world.primary_metric, metric_names)
    draft.metrics.update({f"{mode}/{name}": value for name, value in metrics.items()})
