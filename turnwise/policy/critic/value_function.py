"""The values of states: a linear head on the hidden states of a trunk, without what trains it.

The value of a reply token is that of the state **before** the token is sampled: a linear head on the hidden state that
predicts the token. So the value of a turn's first reply token depends on the whole observation and on none of the
reply. Where a limit cut a trajectory off, `bootstrap` is the value after its last token: of the return that was still
to come. The head starts at zero: every value is 0 until the critic has learned. Of two heads, which start at random,
the smaller value counts (clipped double Q-learning, Fujimoto et al., arXiv 1802.09477; ArCHer, 2402.19446).

`turnwise.policy.critic.critic.Critic` is such a value function in training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.data.arrays import Numbers, Ragged, SequenceBatch, Sequences
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.forward_pass import TrunkPass
from turnwise.policy.reply_states import leaves_padding_out, padded_reply_states
from turnwise.policy.scoring import MicroBatch, lay_out
from turnwise.policy.sharding import Peers

ComputeStates = Callable[[MicroBatch], torch.Tensor]
"""From a micro-batch to the trunk's states that predict its reply tokens, [replies, hidden]."""


class ValueFunction:
    """One value function over a trunk."""

    def __init__(
        self,
        trunk: PreTrainedModel,
        *,
        threads: int,
        peers: Peers | None = None,
        compute_states: ComputeStates | None = None,
        heads: int = 1,
        seed: int = 0,
    ) -> None:
        """A new head, which values every state at 0, or two random ones by `seed`.

        `compute_states` is another way to the trunk's states.
        """
        self._trunk, self._threads, self._peers = trunk, threads, peers
        self._compute_states: ComputeStates = TrunkPass(trunk, peers) if compute_states is None else compute_states
        configuration = trunk.config.get_text_config()
        self._pad_token = configuration.pad_token_id or 0
        with torch.random.fork_rng(devices=[]):
            self.head = torch.nn.Linear(configuration.hidden_size, heads, device=trunk.device)
        for parameter in self.head.parameters():
            torch.nn.init.zeros_(parameter)
        if heads > 1:
            uniform = torch.rand(self.head.weight.shape, generator=torch.Generator().manual_seed(seed))
            with torch.no_grad():
                self.head.weight.copy_((2.0 * uniform - 1.0) / configuration.hidden_size**0.5)

    def values(self, sequences: Sequences, micro_batch_tokens: int) -> Ragged:
        """The values, one row per sequence with one per reply token: of the state before that token is sampled."""
        sequences = SequenceBatch.of(sequences)
        values = np.zeros(len(sequences.tokens))
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in self._lay_out(sequences, micro_batch_tokens):
                values[micro_batch.places] = self.values_at(self._compute_states(micro_batch)).cpu().numpy()
        return sequences.reply_rows(self._total(values)[sequences.mask])

    def bootstrap(self, sequences: Sequences, micro_batch_tokens: int) -> Numbers:
        """One value per sequence: of the state after its last token, to bootstrap from where a limit cut it off.

        A last observation that no reply followed is not among the tokens: the value is of the state in which the last
        reply has just ended.
        """
        sequences = SequenceBatch.of(sequences)
        values = np.zeros(len(sequences))
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in self._lay_out(sequences, micro_batch_tokens, packed=False):
                sequence, last = torch.arange(len(micro_batch.lengths)), micro_batch.lengths.cpu() - 1
                ends = replace(micro_batch, rows=sequence, columns=last)
                states = padded_reply_states(self._trunk, ends) if self._peers is None else self._compute_states(ends)
                members = list(micro_batch.members)
                values[members] = self.values_at(states).cpu().numpy()[: len(members)]
        return self._total(values)

    def values_at(self, states: torch.Tensor) -> torch.Tensor:
        """The values, [n], of hidden states, [n, hidden]: of several heads the smallest."""
        return self.values_by_head(states).amin(dim=-1)

    def values_by_head(self, states: torch.Tensor) -> torch.Tensor:
        """The values of each head, [n, heads], of hidden states, [n, hidden]. Heads and states receive a gradient."""
        values: torch.Tensor = self.head(states.to(self.head.weight.dtype))
        return values

    def _total(self, values: Numbers) -> Numbers:
        """The values that all processes have computed, each some and 0 elsewhere."""
        return values if self._peers is None else self._peers.total(values)

    def _lay_out(self, sequences: SequenceBatch, micro_batch_tokens: int, *, packed: bool = True) -> list[MicroBatch]:
        """The micro-batches that this process computes, packed where they may be and the model can."""
        if self._peers is not None:
            return self._peers.lay_out(sequences, micro_batch_tokens, self._pad_token, self._trunk.device)
        packed = packed and leaves_padding_out(self._trunk)
        return lay_out(sequences, micro_batch_tokens, self._pad_token, self._trunk.device, packed=packed)
