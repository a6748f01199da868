"""Probe: measures with models how far a batch is from the warm start, and whether thoughts depend on their prompts.

It costs forward passes, counted by the metric `scored_tokens`, so it runs only every few iterations, on a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.caching import depends_on
from tasks.models_in_memory import SCORING, keep_learner, reference_log_probabilities, take_learner
from tasks.orchestration.deferred import task
from tasks.playing import frame_of
from tasks.rollout.in_memory import trajectories_of
from turnwise import seeding
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Section
from turnwise.data.trajectory import TokenSequence, Trajectory, trajectory_arrays
from turnwise.health.monitors import first_trained, information, thought_length
from turnwise.policy.divergence import k3
from turnwise.policy.tokenizer import ChatFrame
from turnwise.store import Reference, default_store


class ProbeParameters(Section):
    """The parameters of a probe."""

    learner: LearnerParameters
    """How the policy is loaded: as for the update, so that both use the learner that is in memory."""
    temperature: float
    micro_batch_tokens: int
    sample: int
    seed: int
    iteration: int


@task(name="probe", task_run_name="{label}: probe", retries=1)
@depends_on(
    kernel=(*SCORING, "turnwise.health.monitors", "turnwise.policy.divergence", "turnwise.policy.function_frame"),
    writes="probe 1",
)
def probe(
    parameters: ProbeParameters,
    *,
    policy: Reference,
    warm_start: Reference,
    rollout: Reference,
    tokenizer: Reference,
    label: str = "probe",
) -> Reference:
    """Compute the monitors that need models, as metrics: see `turnwise.health.monitors`.

    `policy` is the behaviour policy of the rollout.
    """
    trajectories = [each for each in trajectories_of(rollout) if each.turns]
    order = seeding.generator(parameters.seed, "probe", parameters.iteration).permutation(len(trajectories))
    drawn = [trajectories[place] for place in order]
    distance, scored = _distance(parameters, policy, warm_start, drawn[: parameters.sample])
    prompts, thoughts = _thoughts(drawn, frame_of(tokenizer), parameters.sample)
    with default_store().write("probe") as draft:
        draft.metrics.update(distance)
        if len(prompts) > 1:
            crossed = _crossed(prompts, thoughts)
            draft.metrics.update(information(_scores(parameters, policy, crossed, len(prompts))))
            scored += sum(len(sequence.tokens) for sequence in crossed)
        draft.metrics.update(scored_tokens=scored, prompts=len(prompts))
    return draft.reference


def _distance(
    parameters: ProbeParameters, policy: Reference, warm_start: Reference, sample: Sequence[Trajectory]
) -> tuple[dict[str, float], int]:
    """Estimated divergence from the warm start, in nats per reply token, and the number of tokens that were scored."""
    import torch

    sequences, _ = trajectory_arrays(sample).segments()
    if not sequences.mask.any():
        return {}, 0
    scores = reference_log_probabilities(
        warm_start, parameters.learner, policy, sequences, parameters.temperature, parameters.micro_batch_tokens
    )
    log_ratios = (sequences.log_probabilities - scores.values)[sequences.mask]
    return {"kl_warm_start": k3(torch.from_numpy(log_ratios)).mean().item()}, len(sequences.tokens)


def _thoughts(
    trajectories: Sequence[Trajectory], frame: ChatFrame, most: int
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Prompts and thoughts of first trained replies, as tokens: one pair per task, none for a reply without thought."""
    prompts: dict[str, tuple[int, ...]] = {}
    thoughts: list[tuple[int, ...]] = []
    for trajectory in trajectories:
        turn = first_trained(trajectory)
        if len(prompts) == most or turn is None or trajectory.task.id in prompts:
            continue
        length = thought_length(trajectory.turns[turn], frame.decode)
        if length:
            segment = next(each for each in trajectory.segments() if turn in each.turn_of_token)
            prompts[trajectory.task.id] = segment.tokens[: segment.turn_of_token.index(turn)]
            thoughts.append(trajectory.turns[turn].reply_tokens[:length])
    return list(prompts.values()), thoughts


def _crossed(prompts: Sequence[tuple[int, ...]], thoughts: Sequence[tuple[int, ...]]) -> list[TokenSequence]:
    """Every thought under every prompt, ordered by thought."""
    return [
        TokenSequence(
            prompt + thought,
            (-1,) * len(prompt) + (0,) * len(thought),
            (0.0,) * (len(prompt) + len(thought)),
        )
        for thought in thoughts
        for prompt in prompts
    ]


def _scores(
    parameters: ProbeParameters, policy: Reference, crossed: Sequence[TokenSequence], count: int
) -> list[list[float]]:
    """The log-probability of each thought (row) under each prompt (column), in nats."""
    learner = take_learner(policy, parameters.learner)
    rows = learner.log_probabilities(crossed, parameters.temperature, parameters.micro_batch_tokens)
    keep_learner(policy, parameters.learner, learner)
    totals = [sum(row) for row in rows.tolist()]
    return [totals[begin : begin + count] for begin in range(0, len(totals), count)]
