"""A model's forward pass over a micro-batch as one module, so that its weights can be sliced and gathered around it.

`turnwise.policy.sharding` gathers the weights that a module uses when the module is called. What learner and critic ask
of a model is not transformers' forward pass: the output layer is computed at reply tokens alone, and in chunks. So it
is a module of its own, which all of them call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel

from turnwise.config.model_settings import ModelSettings
from turnwise.policy.model import dtype_of, layers_of
from turnwise.policy.reply_states import reply_states
from turnwise.policy.scoring import MicroBatch, score_replies

if TYPE_CHECKING:
    from turnwise.policy.sharding import Peers


class ForwardPass(torch.nn.Module):
    """From a micro-batch to the trunk's states, and to log-probabilities and entropies of its reply tokens."""

    def __init__(self, model: PreTrainedModel, settings: ModelSettings, peers: Peers | None = None) -> None:
        """A pass through `model`, whose weights are sliced over `peers` where there are any."""
        super().__init__()
        self.model, self._settings = model, settings
        if peers is not None:
            peers.shard(self, layers_of(model))

    def forward(
        self,
        micro_batch: MicroBatch,
        temperature: float = 1.0,
        *,
        entropy_gradient: bool = False,
        states_alone: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States that predict reply tokens, [replies, hidden]; log-probabilities and entropies, [replies], in nats.

        `temperature` and `entropy_gradient` are those of `turnwise.policy.scoring.score`. With `states_alone` the
        output layer is left out, and the others are empty.
        """
        states = reply_states(self.model, micro_batch)
        if states_alone:
            return states, states.new_empty(0), states.new_empty(0)
        log_probabilities, entropy = score_replies(
            self.model,
            states,
            micro_batch.targets,
            temperature=temperature,
            chunk_tokens=self._settings.logit_chunk_tokens,
            dtype=dtype_of(self._settings),
            entropy_gradient=entropy_gradient,
        )
        return states, log_probabilities, entropy

    def states(self, micro_batch: MicroBatch) -> torch.Tensor:
        """The states alone, without the output layer."""
        states: torch.Tensor = self(micro_batch, states_alone=True)[0]
        return states


class TrunkPass(torch.nn.Module):
    """From a micro-batch to the trunk's states alone."""

    def __init__(self, model: PreTrainedModel, peers: Peers | None = None) -> None:
        """A pass through `model`, of which the output layer is not used."""
        super().__init__()
        self.model = model
        if peers is not None:
            peers.shard(self, layers_of(model))

    def forward(self, micro_batch: MicroBatch) -> torch.Tensor:
        """States that predict reply tokens, [replies, hidden]."""
        return reply_states(self.model, micro_batch)
