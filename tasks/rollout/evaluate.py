"""Evaluation: a policy or a scripted baseline on a fixed task set, through the same episode loop."""

from __future__ import annotations

from tasks.playing import playing_code, playing_reads, sampled_policy, save_played, tasks_of
from tasks.stage import stage
from turnwise import seeding
from turnwise.agent.loop import RolloutResult
from turnwise.agent.playing import PlayParameters, play_with_script, recorded_by, the_world
from turnwise.agent.sampling import play_with_policy
from turnwise.config.model_settings import Compute
from turnwise.config.schema import EvaluationSection
from turnwise.data.evaluations import GREEDY, SAMPLED
from turnwise.data.metrics import episode_means, episode_value
from turnwise.statistics.pass_at_k import mean_pass_at_k
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
        return cls(
            **{name: getattr(play, name) for name in PlayParameters.model_fields},
            compute=compute,
            samples=evaluation.samples,
            temperature=evaluation.temperature,
            seed=evaluation.seed,
            split=split,
            horizon=horizon,
        )


@stage("evaluate", retries=1, code=playing_code, reads=playing_reads)
def evaluate(
    parameters: EvaluationParameters, *, policy: Reference, tokenizer: Reference, task_set: Reference
) -> Reference:
    """Play one greedy and `samples` sampled episodes per task, saved in the folders `greedy` and `sampled`.

    Metrics are means over episodes; `sampled/pass@k` is the unbiased estimate of pass@k by the world's primary metric.
    """
    tasks = tasks_of(task_set, parameters.split)
    # Before playing: if the world were unreachable afterwards, all episodes were wasted.
    world, recorded = the_world(parameters.world), recorded_by(parameters)
    clock: dict[str, float] = {}
    with default_store().write("evaluation") as draft:
        for mode, replicas, temperature in ((GREEDY, 1, 0.0), (SAMPLED, parameters.samples, parameters.temperature)):
            played = play_with_policy(
                parameters,
                parameters.compute,
                tasks,
                replicas,
                policy=sampled_policy(policy),
                tokenizer=default_store().folder(tokenizer),
                temperature=temperature,
                # Of neither variant, run nor iteration: all policies meet the same worlds, so differences are paired.
                seed=seeding.derive(parameters.seed, "evaluation", mode),
                what=f"evaluation: {mode}",
                horizon=parameters.horizon,
            )
            _record(draft, mode, played, world, recorded)
            for name, seconds in played.seconds.items():
                clock[name] = clock.get(name, 0.0) + seconds
    default_store().record_clock(draft.reference, clock)
    return draft.reference


class BaselineParameters(PlayParameters):
    """The parameters of an evaluation of a scripted baseline policy."""

    baseline: str
    samples: int
    seed: int
    split: Split


@stage("baseline", retries=1, code=playing_code, reads=playing_reads)
def baseline(parameters: BaselineParameters, *, task_set: Reference) -> Reference:
    """Play `samples` episodes per task with a scripted baseline policy, saved in the folder `sampled`."""
    tasks = tasks_of(task_set, parameters.split)
    world, recorded = the_world(parameters.world), recorded_by(parameters)
    played = play_with_script(
        parameters, tasks, parameters.samples, lambda episode, turn: parameters.baseline, parameters.seed
    )
    with default_store().write("evaluation") as draft:
        _record(draft, SAMPLED, played, world, recorded)
    default_store().record_clock(draft.reference, played.seconds)
    return draft.reference


def _record(draft: Draft, mode: str, played: RolloutResult, world: World, recorded: frozenset[str]) -> None:
    trajectories = save_played(draft, played, mode)
    means = episode_means(trajectories, len(played.lost), recorded)
    draft.metrics.update({f"{mode}/{name}": value for name, value in means.items()})
    correct: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        correct.setdefault(trajectory.task.id, []).append(episode_value(trajectory, world.primary_metric) >= 1.0)
    successes, samples = [sum(replicas) for replicas in correct.values()], [len(each) for each in correct.values()]
    # An episode that was lost leaves its task with fewer samples, and pass@k needs k of every task.
    for k in (2**power for power in range(1, 7) if 2**power <= min(samples, default=0)):
        draft.metrics[f"{mode}/pass@{k}"] = mean_pass_at_k(successes, samples, k)


def success_of(evaluation: Reference) -> float:
    """The mean success of an evaluation's sampled episodes."""
    return default_store().metrics(evaluation)[f"{SAMPLED}/success"]
