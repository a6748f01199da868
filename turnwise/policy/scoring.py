"""From token sequences to the log-probabilities of their replies: micro-batches, and what a policy says of them.

A micro-batch holds sequences of similar length, or sequences that begin alike, padded on the right. They need no
attention mask: under causal attention no token sees the padding after it. With the trunk's hidden state h at the
position before a reply token, the output layer W, b and the temperature T:

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from turnwise.data.arrays import Integers, Numbers, Ragged, SequenceBatch


def by_length(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """The indices of the sequences in each micro-batch, whose padded size (longest x count) is within the budget.

    `lengths` and `token_budget` are in tokens. Sequences are sorted by length, longest first and equal lengths in the
    order given, so that neighbours have similar lengths and the order is a function of the lengths. A sequence that
    exceeds the budget by itself gets a micro-batch of its own.
    """
    if token_budget < 1:
        raise ValueError(f"the token budget of a micro-batch must be at least 1; found {token_budget}")
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


KNOWN_TOKEN = 0.25
"""What a token counts in a budget of computed tokens where the sequence before it has begun with it: attention alone
keeps its key and value again, by the memory plan 3 % of a token's activations for SmolLM2 and a fifth at most."""


def by_beginning(sequences: SequenceBatch, token_budget: int, known_token: float = 1.0) -> list[list[int]]:
    """The indices of the sequences in each micro-batch, whose tokens together, without padding, are within the budget.

    Sequences are in the order of their tokens, so that those which begin alike are neighbours. A leading token that a
    sequence has in common with the one before it in the micro-batch counts as `known_token`, its last one apart. A
    sequence that exceeds the budget by itself gets a micro-batch of its own.
    """
    if token_budget < 1:
        raise ValueError(f"the token budget of a micro-batch must be at least 1; found {token_budget}")
    rows = sequences.rows(sequences.tokens)
    as_bytes = [row.astype(">i8").tobytes() for row in rows]
    batches: list[list[int]] = []
    batch_tokens = 0.0
    for index in sorted(range(len(rows)), key=lambda index: (as_bytes[index], index)):
        length = len(rows[index])
        known = min(_prefix_length(rows[batches[-1][-1]], rows[index]), length - 1) if batches else 0
        batch_tokens += length - (1.0 - known_token) * known
        if batches and batch_tokens <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
            batch_tokens = length
    return batches


def _prefix_length(one: Integers, other: Integers) -> int:
    """The number of leading tokens that two sequences have in common."""
    shorter = min(len(one), len(other))
    unlike = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(unlike[0]) if len(unlike) else shorter


@dataclass(frozen=True)
class MicroBatch:
    """Sequences, padded, and the positions of their reply tokens.

    The n-th reply token of the micro-batch is `targets[n]`. It is predicted at position [rows[n], columns[n]] of
    `inputs`, and is itself at the next column. Reply tokens are in the order of the sequences, then of their tokens.
    """

    members: tuple[int, ...]
    """Indices of the sequences within their batch."""
    inputs: torch.Tensor
    """Token ids, [sequences, longest]."""
    lengths: torch.Tensor
    """Of the sequences, in tokens, [sequences]."""
    rows: torch.Tensor
    """[replies]."""
    columns: torch.Tensor
    """[replies]."""
    targets: torch.Tensor
    """Token ids, [replies]."""
    places: Integers
    """Where the reply tokens are in the arrays of the batch that was laid out, [replies]."""

    padded_tokens: int
    """The number of positions that count as computed: with padding, or without where the forward pass leaves it out."""


def lay_out(
    sequences: SequenceBatch,
    token_budget: int,
    pad_token: int,
    device: torch.device,
    *,
    packed: bool = False,
    known_token: float = 1.0,
) -> list[MicroBatch]:
    """The sequences as micro-batches on `device`, within a budget of padded tokens: see `by_length`.

    `packed`: for a forward pass that computes no padding; see `by_beginning`, also for `known_token`.
    """
    if packed:
        members = by_beginning(sequences, token_budget, known_token)
    else:
        members = by_length(sequences.lengths.tolist(), token_budget)
    return [pad(sequences, each, pad_token, device, packed=packed) for each in members]


def pad(
    sequences: SequenceBatch, members: Sequence[int], pad_token: int, device: torch.device, *, packed: bool = False
) -> MicroBatch:
    """One micro-batch of the sequences with the indices `members`; `packed` as in `lay_out`."""
    lengths = sequences.lengths[list(members)]
    columns = np.arange(lengths.max())
    is_token = columns < lengths[:, None]
    place = np.where(is_token, sequences.offsets[list(members)][:, None] + columns, 0)
    inputs = np.where(is_token, sequences.tokens[place], pad_token)
    is_reply = is_token & sequences.mask[place]
    if is_reply[:, 0].any():
        raise ValueError("a sequence must begin with an observation: nothing predicts its first token")
    rows, replies = is_reply.nonzero()
    return MicroBatch(
        members=tuple(members),
        inputs=torch.from_numpy(inputs).to(device),
        lengths=torch.from_numpy(lengths).to(device),
        rows=torch.from_numpy(rows).to(device),
        columns=torch.from_numpy(replies - 1).to(device),
        targets=torch.from_numpy(inputs[rows, replies]).to(device),
        places=place[rows, replies],
        padded_tokens=int(lengths.sum()) if packed else inputs.size,
    )


def at_reply_tokens(values: Ragged | Numbers, micro_batch: MicroBatch) -> torch.Tensor:
    """The entries of `values` at the micro-batch's reply tokens, [replies] in float32.

    `values` has one number per token of the batch that was laid out, [tokens] or one row per sequence.
    """
    flat = values.values if isinstance(values, Ragged) else values
    return torch.from_numpy(flat[micro_batch.places]).to(torch.float32).to(micro_batch.inputs.device)


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

    `states` are the model's `turnwise.policy.reply_states.reply_states`, and `targets` the reply tokens.
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
    return torch.cat([log_probabilities for log_probabilities, _ in scored]), torch.cat(
        [entropy for _, entropy in scored]
    )


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
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1.0:
        logits = logits.div_(temperature)
    log_probabilities, entropy = _ChosenAndEntropy.apply(logits, targets.unsqueeze(-1), entropy_gradient)
    return log_probabilities, entropy


class _ChosenAndEntropy(torch.autograd.Function):
    """log p_chosen and H from logits, [replies, vocabulary], and the tokens chosen, [replies, 1]: both [replies].

    p is computed once and serves both directions. With the gradients a of log p_chosen and b of H:

        of z_j:  a [j is chosen] - p_j (a + b (log p_j + H))
    """

    @staticmethod
    def forward(
        context: Any, logits: torch.Tensor, targets: torch.Tensor, entropy_gradient: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        log_p = logits - logits.amax(dim=-1, keepdim=True)
        p = log_p.exp()
        total = p.sum(dim=-1, keepdim=True)
        p.div_(total)
        log_p.sub_(total.log_())
        entropy = -torch.linalg.vecdot(p, log_p)
        if entropy_gradient:
            context.save_for_backward(p, targets, log_p, entropy)
        else:
            context.save_for_backward(p, targets)
            context.mark_non_differentiable(entropy)
        return log_p.gather(-1, targets).squeeze(-1), entropy

    @staticmethod
    @once_differentiable
    def backward(
        context: Any, chosen_gradients: torch.Tensor, entropy_gradients: torch.Tensor
    ) -> tuple[torch.Tensor, None, None]:
        p, targets, *for_entropy = context.saved_tensors
        chosen_gradients = chosen_gradients.unsqueeze(-1)
        if for_entropy:
            log_p, entropy = for_entropy
            factor = torch.addcmul(chosen_gradients, entropy_gradients.unsqueeze(-1), log_p + entropy.unsqueeze(-1))
            logit_gradients = factor.mul_(p).neg_()
        else:
            logit_gradients = p * -chosen_gradients
        return logit_gradients.scatter_add_(-1, targets, chosen_gradients), None, None
