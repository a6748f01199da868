"""A policy that scores token sequences: a transformers model under torch, without what trains it.

`turnwise.policy.model` loads the model (precision, adapter, memory). The output layer, with one row per token of the
vocabulary, is computed only where the next token belongs to a reply. Every result is a function of the weights and the
arguments: no dropout, a fixed number of threads, a fixed order of micro-batches.

With `peers` several processes hold the policy together (`turnwise.policy.sharding`): each calls the same methods with
the same arguments, and has the same results. `turnwise.policy.learner.learner.Learner` is such a policy in training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.data.arrays import Integers, Ragged, SequenceBatch, Sequences
from turnwise.errors import ConfigurationError
from turnwise.policy.adapter import without_adapter
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.forward_pass import ForwardPass
from turnwise.policy.freed_memory import keep_freed_memory
from turnwise.policy.model import load_policy
from turnwise.policy.reply_states import is_packable, leaves_padding_out
from turnwise.policy.scoring import KNOWN_TOKEN, MicroBatch, lay_out
from turnwise.policy.sharding import Peers


class ScoredPolicy:
    """One policy, for log-probabilities and entropies."""

    def __init__(
        self,
        policy: Path | str,
        *,
        device: str = "cpu",
        threads: int,
        model: ModelSettings = PLAIN,
        peers: Peers | None = None,
    ) -> None:
        """Load `policy`, a folder in Hugging Face's layout or a hub id, with a new adapter where the settings have one.

        Raises ConfigurationError for a model that caps or scales its logits.
        """
        self._model_settings, self._threads, self._peers = model, threads, peers
        self.model = load_policy(policy, model, device, held_on=None if peers is None else "cpu")
        parameters = self.model.num_parameters()
        with reproducible_computing(threads):
            require_plain_output_layer(self.model)
        self._pass = ForwardPass(self.model, model, peers)
        # Known once the weights are sliced over the peers: then the pass is transformers' own, too.
        few_sizes = is_packable(self.model) and not model.gradient_checkpointing
        keep_freed_memory(parameters, few_sizes=few_sizes)
        self._pad_token = self.model.config.pad_token_id or 0

    def log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """Log-probabilities in nats, one row per sequence with one number per token; 0.0 at observation tokens."""
        return self.scores(sequences, temperature, micro_batch_tokens)[0]

    def reference_log_probabilities(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> Ragged:
        """As `log_probabilities`, of the policy that an adapter began with: the same weights with the adapter off.

        Raises ValueError for a policy without an adapter, which no longer has the weights that it began with.
        """
        if self._model_settings.adapter is None:
            raise ValueError("the policy that training began with is held by a learner with an adapter alone")
        with without_adapter(self.model):
            return self.log_probabilities(sequences, temperature, micro_batch_tokens)

    def states(self, sequences: Sequences, micro_batch_tokens: int) -> torch.Tensor:
        """The last hidden states before the reply tokens, [reply tokens, hidden], in the order of the sequences.

        For one process: with `peers` each computes its part alone.
        """
        sequences = SequenceBatch.of(sequences)
        numbers = np.cumsum(sequences.mask) - 1
        parts: list[torch.Tensor] = []
        order: list[Integers] = []
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in self._lay_out(sequences, micro_batch_tokens):
                parts.append(self._pass.states(micro_batch))
                order.append(numbers[micro_batch.places])
        if not parts:
            return self.model.get_output_embeddings().weight.detach()[:0]
        return torch.cat(parts)[np.argsort(np.concatenate(order))]

    def scores(self, sequences: Sequences, temperature: float, micro_batch_tokens: int) -> tuple[Ragged, Ragged]:
        """`log_probabilities`, and laid out as these the entropies in nats of the distributions that reply tokens are
        drawn from, by one pass over the sequences.
        """
        sequences = SequenceBatch.of(sequences)
        log_probabilities, entropies = np.zeros(len(sequences.tokens)), np.zeros(len(sequences.tokens))
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in self._lay_out(sequences, micro_batch_tokens):
                _, log_probability, entropy = self._pass(micro_batch, temperature)
                log_probabilities[micro_batch.places] = log_probability.cpu().numpy()
                entropies[micro_batch.places] = entropy.cpu().numpy()
        if self._peers is not None:
            log_probabilities, entropies = map(self._peers.total, (log_probabilities, entropies))
        return sequences.rows(log_probabilities), sequences.rows(entropies)

    def _lay_out(self, sequences: SequenceBatch, micro_batch_tokens: int, *, dealt: bool = True) -> list[MicroBatch]:
        """The micro-batches that this process computes; those of all processes where they are not to be dealt."""
        if self._peers is not None and dealt:
            return self._peers.lay_out(sequences, micro_batch_tokens, self._pad_token, self.model.device)
        counts_computed = self._model_settings.counted_tokens == "computed" and is_packable(self.model)
        return lay_out(
            sequences,
            micro_batch_tokens,
            self._pad_token,
            self.model.device,
            packed=leaves_padding_out(self.model),
            known_token=KNOWN_TOKEN if counts_computed else 1.0,
        )


def require_plain_output_layer(model: PreTrainedModel) -> None:
    """Raise ConfigurationError for a model that caps or scales its logits, since its loss would be wrong."""
    with torch.no_grad():
        tokens = torch.arange(1, 5, device=model.device).unsqueeze(0)
        hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        if not torch.allclose(model.get_output_embeddings()(hidden), model(input_ids=tokens, use_cache=False).logits):
            raise ConfigurationError(
                f"a policy's logits must be its output layer applied to its last hidden state; those of "
                f"{type(model).__name__} are not (it caps or scales them): choose another architecture",
                "TW-nonlinear-logits",
            )
