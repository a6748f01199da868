"""Log-probabilities of the sampled tokens, and entropies, without the logits of the whole batch in memory.

A vocabulary of 150,000 makes the logits of 16,000 tokens 10 GB in float32, and autograd would keep two or three such
tensors for the backward pass. Here the reply tokens go through the output layer in chunks; the backward pass computes
each chunk's logits again. With the hidden state h, the output layer W, b and the temperature T:

    z = (W h + b) / T        p = softmax(z)
    log pi = z_chosen - logsumexp(z)
    H      = -sum_j p_j log p_j

    d(log pi)/dz_j = [j = chosen] - p_j
    dH/dz_j        = -p_j (log p_j + H)

At no time is there more than one chunk's `[chunk, vocabulary]` tensors. Cost: the output layer's forward pass twice.
Both results carry a gradient; entropies that are only reported cost none as long as nothing is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.policy.packing import MicroBatch


def reply_states(model: PreTrainedModel, micro_batch: MicroBatch) -> torch.Tensor:
    """The trunk's last hidden state where a reply token is predicted: [replies, hidden]."""
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
) -> tuple[torch.Tensor, torch.Tensor]:
    """`score` with the model's output layer. `states` are its `reply_states`, `dtype` that of `ModelSettings`."""
    head = model.get_output_embeddings()
    # A model in float64, as the proofs have it, stays in it.
    dtype = torch.float64 if states.dtype == torch.float64 else dtype
    return score(
        states.to(dtype),
        head.weight,
        getattr(head, "bias", None),
        targets,
        temperature=temperature,
        chunk_tokens=chunk_tokens,
    )


def score(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    temperature: float = 1.0,
    chunk_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of `targets` and entropies of the distributions they were drawn from, in nats: both [replies].

    `states`: [replies, hidden]; `weight`: [vocabulary, hidden]; `bias`: [vocabulary] or None; `targets`: [replies].
    Logits are computed in the dtype of `states` and used in float32 (in float64 where `states` are). `chunk_tokens`
    bounds the reply tokens whose logits exist at once: it changes memory, and the result only in its rounding. Raises
    ValueError for a temperature or a chunk that is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"the temperature of log-probabilities must be above 0; found {temperature}")
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens must be at least 1; found {chunk_tokens}")
    log_probabilities, entropies = _ChunkedScore.apply(states, weight, bias, targets, temperature, chunk_tokens)
    return log_probabilities, entropies


class _ChunkedScore(torch.autograd.Function):
    """See the head of this file."""

    @staticmethod
    def forward(
        context: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
        chunk_tokens: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        precise = torch.promote_types(states.dtype, torch.float32)
        log_probabilities, normalisers, entropies = (
            torch.empty(len(states), dtype=precise, device=states.device) for _ in range(3)
        )
        for chunk in _chunks(len(states), chunk_tokens):
            logits = _logits(states[chunk], weight, bias, temperature)
            normalisers[chunk] = logits.logsumexp(dim=-1)
            log_distribution = logits.sub_(normalisers[chunk].unsqueeze(-1))
            log_probabilities[chunk] = log_distribution.gather(-1, targets[chunk].unsqueeze(-1)).squeeze(-1)
            entropies[chunk] = -(log_distribution.exp().mul_(log_distribution)).sum(dim=-1)
        context.save_for_backward(states, weight, bias, targets, normalisers, entropies)
        context.temperature, context.chunk_tokens = temperature, chunk_tokens
        context.set_materialize_grads(False)
        return log_probabilities, entropies

    @staticmethod
    def backward(
        context: Any, of_log_probabilities: torch.Tensor | None, of_entropies: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        states, weight, bias, targets, normalisers, entropies = context.saved_tensors
        wants_states, wants_weight, wants_bias = context.needs_input_grad[:3]
        for_states = torch.zeros_like(states) if wants_states else None
        for_weight = torch.zeros_like(weight) if wants_weight else None
        for_bias = torch.zeros_like(bias) if wants_bias else None
        for chunk in _chunks(len(states), context.chunk_tokens):
            log_distribution = _logits(states[chunk], weight, bias, context.temperature)
            log_distribution.sub_(normalisers[chunk].unsqueeze(-1))
            of_logits = torch.zeros_like(log_distribution)
            if of_entropies is not None:
                outer = -of_entropies[chunk].unsqueeze(-1)
                of_logits.add_(log_distribution).add_(entropies[chunk].unsqueeze(-1)).mul_(outer)
            if of_log_probabilities is not None:
                of_logits.sub_(of_log_probabilities[chunk].unsqueeze(-1))
            of_logits.mul_(log_distribution.exp_())
            if of_log_probabilities is not None:
                rows = torch.arange(len(of_logits), device=of_logits.device)
                of_logits[rows, targets[chunk]] += of_log_probabilities[chunk]
            of_product = of_logits.div_(context.temperature).to(states.dtype)
            if for_states is not None:
                for_states[chunk] = of_product @ weight.to(states.dtype)
            if for_weight is not None:
                for_weight += of_product.T @ states[chunk]
            if for_bias is not None:
                for_bias += of_product.sum(dim=0)
        return for_states, for_weight, for_bias, None, None, None


def _logits(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, temperature: float) -> torch.Tensor:
    """A chunk's logits over the temperature, in float32 or better, in memory of their own: [chunk, vocabulary]."""
    bias = None if bias is None else bias.to(states.dtype)
    product = torch.nn.functional.linear(states, weight.to(states.dtype), bias)
    return product.to(torch.promote_types(states.dtype, torch.float32)).div_(temperature)


def _chunks(count: int, chunk: int) -> Iterator[slice]:
    return (slice(begin, begin + chunk) for begin in range(0, count, chunk))
