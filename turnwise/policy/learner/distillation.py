"""Distillation: the divergence of the policy from a teacher, over the whole vocabulary, at each reply token.

With pi the policy at the reply token, and q the teacher, both at the sampling temperature; sums over the vocabulary:

    D_t = a KL(q || m) + (1 - a) KL(pi || m),   m = (1 - a) pi + a q       0 < a < 1    generalised Jensen-Shannon
    D_t = KL(q || pi)                                                      a = 0        forward: covers the teacher
    D_t = KL(pi || q)                                                      a = 1        reverse: seeks its mode

    L'_t = (1 - w) L_t + w D_t         in place of the policy loss L_t;  a: `interpolation`, w: `weight`

GKD (Agarwal et al., arXiv 2306.13649, equation 1), whose ends are not the limits of what is between them: those are 0.
As in TRL's GKD and its SDPO with `distillation_mode: full_logits`. Only pi has a gradient, at the tokens that were
sampled: which tokens those are, is not differentiated.

With `teacher` q is another policy, which reads what the policy did: on-policy distillation. Tokens that only one of the
two models has a number for (padding of its output layer) have no part in pi and q.

The teacher of self-distillation is the policy itself as it is before this update's first step, shown what came of the
episode: `turnwise.agent.hindsight`. SDPO (Hübotter et al., arXiv 2601.20802) has a moving average of policies, and the
sampled form of D_t, for a = 1, is the credit rule `self-distillation`. Where the teacher is shown nothing, D_t is 0,
and the token counts in the aggregation.

Bias: on tokens that pi samples the gradient of the sum of D_t, with a = 1 and w = 1, is that of the divergence
KL(pi || q) of whole replies but for one term: where a token leads is not counted, as with `self-distillation` and gamma
0, of whose gradient this is the mean over the token that is sampled. It has no reward in it. From the second optimizer
step on a batch, tokens are no longer samples of pi, and D_t is not reweighted for that (TRL truncates the ratio at
`distillation_is_clip`); nor does a correction, a selection of tokens or a bound change it.

At no time are the `[tokens, vocabulary]` tensors of all tokens in memory: of the teacher its last hidden states are
kept, [reply tokens, hidden], and the logits of both are computed in chunks, as in `turnwise.policy.scoring`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint

from turnwise.config.optimization import Distillation
from turnwise.data.arrays import SequenceBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from turnwise.policy.scored_policy import ScoredPolicy


@dataclass(frozen=True)
class Teacher:
    """Who is learned from, and what it reads."""

    sequences: SequenceBatch
    """What it reads, with the reply tokens at which it is learned from."""
    policy: ScoredPolicy | None = None
    """None: the policy in training, as it is before its first step."""


@dataclass(frozen=True)
class OutputLayer:
    """What makes logits of hidden states: z = (W h + b) / T."""

    weight: torch.Tensor
    """W, [vocabulary, hidden]."""
    bias: torch.Tensor | None
    """b, [vocabulary]."""
    temperature: float

    @classmethod
    def of(cls, model: PreTrainedModel, temperature: float) -> OutputLayer:
        """The output layer of a model: its own tensors, which change as it is trained."""
        head = model.get_output_embeddings()
        return cls(head.weight, getattr(head, "bias", None), temperature)

    def frozen(self) -> OutputLayer:
        """A copy that stays as it is."""
        bias = None if self.bias is None else self.bias.detach().clone()
        return OutputLayer(self.weight.detach().clone(), bias, self.temperature)

    def first(self, tokens: int) -> OutputLayer:
        """That of so many tokens of the vocabulary, from the first."""
        return OutputLayer(self.weight[:tokens], None if self.bias is None else self.bias[:tokens], self.temperature)

    def log_probabilities(self, states: torch.Tensor) -> torch.Tensor:
        """In nats, [tokens, vocabulary], of states [tokens, hidden]."""
        bias = None if self.bias is None else self.bias.to(states.dtype)
        logits = torch.nn.functional.linear(states, self.weight.to(states.dtype), bias)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.log_softmax(logits / self.temperature, dim=-1)


@dataclass(frozen=True)
class TeacherStates:
    """A teacher, as far as it is learned from."""

    states: torch.Tensor
    """Its last hidden states before each reply token that it has read, [tokens, hidden]."""
    output_layer: OutputLayer

    def divergences(
        self,
        states: torch.Tensor,
        output_layer: OutputLayer,
        rows: torch.Tensor,
        settings: Distillation,
        *,
        chunk_tokens: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """D_t, in nats, [replies], of a policy's `states` before reply tokens, [replies, hidden].

        `rows` says which state of the teacher belongs to each, [replies]; -1: none, and D_t is 0. `chunk_tokens` bounds
        the tokens whose logits exist at once. Logits are computed in `dtype`.
        """
        dtype = torch.float64 if states.dtype == torch.float64 else dtype
        shared = min(len(output_layer.weight), len(self.output_layer.weight))
        policy, teacher = output_layer.first(shared), self.output_layer.first(shared)
        with_teacher = (rows >= 0).nonzero().squeeze(-1)

        def compute_chunk(chunk: torch.Tensor) -> torch.Tensor:
            log_p = policy.log_probabilities(states[chunk].to(dtype))
            log_q = teacher.log_probabilities(self.states[rows[chunk]].to(dtype))
            return vocabulary_divergence(log_p, log_q, settings.interpolation)

        divergences = states.new_zeros(len(rows), dtype=torch.promote_types(dtype, torch.float32))
        for chunk in with_teacher.split(chunk_tokens):
            if len(with_teacher) <= chunk_tokens:
                chunk_divergences = compute_chunk(chunk)
            else:  # logits are computed again in the backward pass, and not kept until then
                chunk_divergences = checkpoint(compute_chunk, chunk, use_reentrant=False, preserve_rng_state=False)
            divergences = divergences.index_put((chunk,), chunk_divergences)
        return divergences


def vocabulary_divergence(log_p: torch.Tensor, log_q: torch.Tensor, interpolation: float) -> torch.Tensor:
    """D of the policy's and the teacher's log-probabilities, [..., vocabulary], in nats: [...]."""
    if interpolation == 0.0:
        return _divergence(log_q, log_p)
    if interpolation == 1.0:
        return _divergence(log_p, log_q)
    mixed = torch.logaddexp(log_p + math.log1p(-interpolation), log_q + math.log(interpolation))
    return torch.lerp(_divergence(log_p, mixed), _divergence(log_q, mixed), interpolation)


def _divergence(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) over the last dimension."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)
