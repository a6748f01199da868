"""The monitors that need models: how far a batch is from the warm start, and whether thoughts depend on their prompts.

Their equations are in `turnwise.health.monitors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise import seeding
from turnwise.config.model_settings import LearnerParameters
from turnwise.config.schema import Section
from turnwise.data.arrays import Ragged, SequenceBatch, Sequences, TokenSequence
from turnwise.data.trajectory import Trajectory, trajectory_arrays
from turnwise.health.monitors import first_trained, information, thought_length
from turnwise.policy.divergence import k3

Tokens = tuple[int, ...]


class ProbeParameters(Section):
    """The parameters of a probe."""

    learner: LearnerParameters
    """How the policy is loaded: as for the update, so that both use the learner that is in memory."""
    temperature: float
    micro_batch_tokens: int
    sample: int
    seed: int
    iteration: int


def probe_batch(
    parameters: ProbeParameters,
    trajectories: Sequence[Trajectory],
    decode: Callable[[Tokens], str],
    warm_start: Callable[[SequenceBatch], Ragged],
    policy: Callable[[Sequences], Ragged],
) -> dict[str, float]:
    """The monitors of a sample of the batch, with `scored_tokens`, what they cost, and the number of `prompts`.

    `decode` maps token ids to text. `warm_start` and `policy` return log-probabilities in nats, one row per sequence
    with one number per token.
    """
    episodes = [each for each in trajectories if each.turns]
    order = seeding.generator(parameters.seed, "probe", parameters.iteration).permutation(len(episodes))
    shuffled = [episodes[place] for place in order]
    metrics, scored_tokens = _distance(shuffled[: parameters.sample], warm_start)
    prompts, thoughts = _thoughts(shuffled, decode, parameters.sample)
    if len(prompts) > 1:
        # Every thought under every prompt, ordered by thought.
        crossed = [
            TokenSequence(
                prompt + thought,
                (-1,) * len(prompt) + (0,) * len(thought),
                (0.0,) * (len(prompt) + len(thought)),
            )
            for thought in thoughts
            for prompt in prompts
        ]
        totals = [sum(row) for row in policy(crossed).tolist()]
        rows = [totals[begin : begin + len(prompts)] for begin in range(0, len(totals), len(prompts))]
        metrics |= information(rows)
        scored_tokens += sum(len(sequence.tokens) for sequence in crossed)
    return {**metrics, "scored_tokens": scored_tokens, "prompts": len(prompts)}


def _distance(
    sample: Sequence[Trajectory], warm_start: Callable[[SequenceBatch], Ragged]
) -> tuple[dict[str, float], int]:
    """Estimated divergence from the warm start, in nats per reply token, and the number of tokens that were scored."""
    import torch

    sequences, _ = trajectory_arrays(sample).segments()
    if not sequences.mask.any():
        return {}, 0
    log_ratios = (sequences.log_probabilities - warm_start(sequences).values)[sequences.mask]
    return {"kl_warm_start": k3(torch.from_numpy(log_ratios)).mean().item()}, len(sequences.tokens)


def _thoughts(
    trajectories: Sequence[Trajectory], decode: Callable[[Tokens], str], most: int
) -> tuple[list[Tokens], list[Tokens]]:
    """Prompts and thoughts of first trained replies, as tokens: one pair per task, none for a reply without thought."""
    prompts: dict[str, Tokens] = {}
    thoughts: list[Tokens] = []
    for trajectory in trajectories:
        turn = first_trained(trajectory)
        if len(prompts) == most or turn is None or trajectory.task.id in prompts:
            continue
        length = thought_length(trajectory.turns[turn], decode)
        if length:
            segment = next(each for each in trajectory.segments() if turn in each.turn_of_token)
            prompts[trajectory.task.id] = segment.tokens[: segment.turn_of_token.index(turn)]
            thoughts.append(trajectory.turns[turn].reply_tokens[:length])
    return list(prompts.values()), thoughts
