"""Loss aggregation: the weight of each reply token's loss in the objective.

Over the S samples of a mini-batch, n_i reply tokens in sample i, P prompts (groups), m_p reply tokens in prompt p. A
sample is a trajectory, however many segments it has, or a turn (`optimization.sample`).

    token-mean       1 / (sum of n)      equal weight per token; long replies weigh more              DAPO
    sequence-mean    1 / (S n_i)         equal weight per sample; tokens of long replies weigh less   GRPO
    constant         1 / (S c)           sum over tokens divided by a constant, whatever the length   Dr.GRPO
    prompt-mean      1 / (P m_p)         equal weight per prompt, and per token of one prompt         ScaleRL

Papers: DAPO (arXiv 2503.14476), whose formula is a prompt-mean and whose code a token-mean; GRPO (DeepSeekMath, arXiv
2402.03300); Dr.GRPO (arXiv 2503.20783), whose c is the longest reply allowed; ScaleRL (arXiv 2510.13786).

What differs from most systems: the weights are computed over the whole mini-batch before it is cut into micro-batches,
so that the cut cannot change the objective. A prompt whose trajectories are dealt into several mini-batches is averaged
within each.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.config.optimization import Aggregation


def token_weights(
    aggregation: Aggregation,
    reply_tokens: Sequence[int],
    *,
    groups: Sequence[int] | None = None,
    constant: float | None = None,
) -> list[float]:
    """The weight of a reply token in the loss: one number per sample, shared by all of the sample's reply tokens.

    `reply_tokens`: the number of reply tokens of each sample, at least 1. `groups`: the prompt of each sample, for
    `prompt-mean`. `constant`: the divisor c, in tokens, for `constant`. Raises ValueError where one is missing.
    """
    if not all(reply_tokens):
        raise ValueError("every sample of a mini-batch must have a reply token; leave out those that have none")
    samples = len(reply_tokens)
    match aggregation:
        case "token-mean":
            return [1.0 / sum(reply_tokens)] * samples
        case "sequence-mean":
            return [1.0 / (samples * tokens) for tokens in reply_tokens]
        case "constant":
            if constant is None:
                raise ValueError("the aggregation 'constant' must be given its constant, in tokens; found none")
            return [1.0 / (samples * constant)] * samples
        case "prompt-mean":
            if groups is None:
                raise ValueError("the aggregation 'prompt-mean' must know the group of every sample; found none")
            return _prompt_mean(reply_tokens, groups)


def _prompt_mean(reply_tokens: Sequence[int], groups: Sequence[int]) -> list[float]:
    of_prompt: dict[int, int] = {}
    for group, tokens in zip(groups, reply_tokens, strict=True):
        of_prompt[group] = of_prompt.get(group, 0) + tokens
    return [1.0 / (len(of_prompt) * of_prompt[group]) for group in groups]
