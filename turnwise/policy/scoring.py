"""Log-probabilities of the sampled tokens and entropies, without the logits of a whole micro-batch in memory at once.

With the trunk's hidden state h, the output layer W, b and the temperature T:

    z = (W h + b) / T        p = softmax(z)
    log pi = z_chosen - logsumexp(z)
    H      = -sum_j p_j log p_j

A vocabulary of 150,000 makes the logits of 16,000 tokens 10 GB in float32, and the backward pass needs two or three
such tensors. So only states that predict a reply token are scored, and more of them than `chunk_tokens` go through the
output layer in chunks, each recomputed in the backward pass (Chen et al. 2016, arXiv 1604.06174): at no time are the
`[chunk, vocabulary]` tensors of more than one chunk in memory, at the cost of a second forward pass of the output
layer. A micro-batch that fits into one chunk is computed once.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turnwise.policy.packing import MicroBatch


def reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The trunk's last hidden states at the positions that predict reply tokens: [replies, hidden]."""
    hidden: torch.Tensor = model.base_model(input_ids=micro_batch.inputs, use_cache=False).last_hidden_state
    return hidden[micro_batch.rows, micro_batch.columns]


def score_replies(
    model: PreTrainedModel,
    states: torch.Tensor,
    targets: torch.Tensor,
    *,
    temperature: float,
    chunk_tokens: int,
    dtype: torch.dtype = torch.float32,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies of reply tokens: `score` with the model's output layer, computed in `dtype`.

    `states` are the model's `reply_states`, and `targets` the reply tokens.
    """
    head = model.get_output_embeddings()
    # A model in float64, which exact tests of gradients use, stays in float64.
    dtype = torch.float64 if states.dtype == torch.float64 else dtype
    return score(
        states.to(dtype),
        head.weight,
        getattr(head, "bias", None),
        targets,
        temperature=temperature,
        chunk_tokens=chunk_tokens,
        entropy_gradient=entropy_gradient,
    )


def score(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    temperature: float = 1.0,
    chunk_tokens: int,
    entropy_gradient: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of `targets` and entropies of the distributions they were drawn from, in nats: both [replies].

    `states`: [replies, hidden]; `weight`: [vocabulary, hidden]; `bias`: [vocabulary] or None; `targets`: [replies].
    Logits are computed in the dtype of `states` and used in float32 (in float64 where `states` are). Entropies have a
    gradient only with `entropy_gradient`. `chunk_tokens` bounds the reply tokens whose logits exist at once: it changes
    memory, and the result only in its rounding. Raises ValueError for a temperature or a chunk that is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"the temperature of log-probabilities must be above 0; found {temperature}")
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens must be at least 1; found {chunk_tokens}")
    if len(states) <= chunk_tokens:
        return _score(states, weight, bias, targets, temperature, entropy_gradient)
    chunks = [slice(begin, begin + chunk_tokens) for begin in range(0, len(states), chunk_tokens)]
    scored = [
        checkpoint(
            _score,
            *(states[chunk], weight, bias, targets[chunk], temperature, entropy_gradient),
            use_reentrant=False,
            preserve_rng_state=False,  # nothing is random here
        )
        for chunk in chunks
    ]
    return torch.cat([chosen for chosen, _ in scored]), torch.cat([entropy for _, entropy in scored])


def _score(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    temperature: float,
    entropy_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    bias = None if bias is None else bias.to(states.dtype)
    logits = torch.nn.functional.linear(states, weight.to(states.dtype), bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).div_(temperature)
    log_distribution = logits.log_softmax(dim=-1)
    chosen = log_distribution.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    of_entropy = log_distribution if entropy_gradient else log_distribution.detach()
    return chosen, -(of_entropy.exp() * of_entropy).sum(dim=-1)
