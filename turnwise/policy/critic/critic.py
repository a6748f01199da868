"""The critic: a value model for the estimators that need a baseline per token (the GAE family).

The value of a reply token is that of the state **before** the token is sampled: a linear head on the hidden state that
predicts the token. So the value of a turn's first reply token depends on the whole observation and on none of the
reply. Where a limit cut a trajectory off, `bootstrap` is the value after its last token: of the return that was still
to come. The head starts at zero: every value is 0 until the critic has learned.

There are two kinds of trunk, which differ in the parameters that a loss trains:

* **A trunk of its own**, the policy's architecture with a copy of the policy's weights or random ones: `update` trains
  trunk and head, and the policy receives no gradient.
* **The policy's trunk**: the learner (`turnwise.policy.learner.learner`) minimises both losses at once,

      policy loss + coefficient x value loss          `loss`, on the reply tokens that the policy is trained on

  The trunk receives the gradient of both losses and is stepped by the policy's optimizer at its learning rate; the
  output layer receives the policy loss's alone (except through a tied embedding); the head receives the value loss's
  alone, and is stepped by the critic's optimizer. `update` trains the head only: that is the warm-up, in which the
  policy must not change. The head is saved in the policy's folder.

Paper: PPO (arXiv 1707.06347); MT-GRPO's second version (arXiv 2505.11821) uses it as MT-PPO. Differs from the usual
code: a loss is the mean over all targets of a mini-batch, however the mini-batch is cut into micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.config.schema import CriticSection
from turnwise.data.arrays import Numbers, Ragged, SequenceBatch, Sequences
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.critic.value_loss import clipped_value_loss, explained_variance
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.metric_sums import ValueTally
from turnwise.policy.model import load_trunk
from turnwise.policy.optimizer import NamedAdamW
from turnwise.policy.reply_states import is_packable, reply_states
from turnwise.policy.scoring import MicroBatch, at_reply_tokens, lay_out
from turnwise.seeding import derive

__all__ = ["Critic", "ValueBatch"]

VALUE_HEAD_FILE = "critic/value_head.safetensors"
OPTIMIZER_FILE = "critic/adamw.safetensors"
"""Both are in a subfolder, since engines load every safetensors file next to the model's as weights."""


class Critic:
    """One value function in training. Made by `with_own_trunk`, `on_trunk_of` or `restore`."""

    def __init__(self, trunk: PreTrainedModel, *, owns_trunk: bool, threads: int, model: ModelSettings = PLAIN) -> None:
        self._trunk, self._owns_trunk, self._threads = trunk, owns_trunk, threads
        configuration = trunk.config.get_text_config()
        self._pad_token = configuration.pad_token_id or 0
        with torch.random.fork_rng(devices=[]):
            self.head = torch.nn.Linear(configuration.hidden_size, 1, device=trunk.device)
        for parameter in self.head.parameters():
            torch.nn.init.zeros_(parameter)
        trained = {f"head.{name}": parameter for name, parameter in self.head.named_parameters()}
        if owns_trunk:
            trained |= {f"trunk.{name}": parameter for name, parameter in trunk.named_parameters()}
        self._optimizer = NamedAdamW(trained, model)

    @classmethod
    def with_own_trunk(
        cls,
        policy: Path | str,
        settings: CriticSection,
        *,
        seed: int,
        threads: int,
        device: str = "cpu",
        model: ModelSettings = PLAIN,
    ) -> Critic:
        """A critic with its own trunk: the architecture of `policy`, with its weights or random ones.

        `settings.initial` chooses the weights; `seed` is that of random ones. Raises ConfigurationError unless
        `settings.trunk` is `own`.
        """
        if settings.trunk != "own":
            raise ConfigurationError(
                f"a critic with a trunk of its own must be set so; found trunk {settings.trunk!r}: use on_trunk_of"
            )
        random = derive(seed, "critic") if settings.initial == "random" else None
        trunk = load_trunk(policy, model, device, seed=random)
        return cls(trunk, owns_trunk=True, threads=threads, model=model)

    @classmethod
    def on_trunk_of(cls, model: PreTrainedModel, *, threads: int, folder: Path | None = None) -> Critic:
        """A critic that shares the trunk of a learner's model.

        Its head is new, or with `folder` the one that was saved in this policy's folder.
        """
        critic = cls(model.base_model, owns_trunk=False, threads=threads)
        if folder is not None:
            critic._take(folder)
        return critic

    @classmethod
    def restore(cls, folder: Path, *, threads: int, device: str = "cpu", model: ModelSettings = PLAIN) -> Critic:
        """The critic with its own trunk that was saved in `folder`; it continues exactly, to the bit."""
        critic = cls(load_trunk(folder, model, device), owns_trunk=True, threads=threads, model=model)
        critic._take(folder)
        return critic

    @property
    def steps(self) -> int:
        """Optimizer steps taken since the critic was new, those before a restore included."""
        return self._optimizer.steps

    def values(self, sequences: Sequences, micro_batch_tokens: int) -> Ragged:
        """The values, one row per sequence with one per reply token: of the state before that token is sampled."""
        sequences = SequenceBatch.of(sequences)
        values = np.zeros(len(sequences.tokens))
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in self._lay_out(sequences, micro_batch_tokens):
                states = reply_states(self._trunk, micro_batch)
                values[micro_batch.places] = self.values_at(states).cpu().numpy()
        return sequences.reply_rows(values[sequences.mask])

    def bootstrap(self, sequences: Sequences, micro_batch_tokens: int) -> Numbers:
        """One value per sequence: of the state after its last token, to bootstrap from where a limit cut it off.

        A last observation that no reply followed is not among the tokens: the value is of the state in which the last
        reply has just ended.
        """
        sequences = SequenceBatch.of(sequences)
        values = np.zeros(len(sequences))
        with reproducible_computing(self._threads), torch.no_grad():
            for micro_batch in lay_out(sequences, micro_batch_tokens, self._pad_token, self._trunk.device):
                hidden = self._trunk(input_ids=micro_batch.inputs, use_cache=False).last_hidden_state
                members = list(micro_batch.members)
                last = torch.from_numpy(sequences.lengths[members] - 1)
                states = hidden[torch.arange(len(last)), last]
                values[members] = self.values_at(states).cpu().numpy()
        return values

    def values_at(self, states: torch.Tensor) -> torch.Tensor:
        """The values, [n], of hidden states, [n, hidden]. Both the head and the states receive a gradient."""
        values: torch.Tensor = self.head(states.to(self.head.weight.dtype)).squeeze(-1)
        return values

    def update(self, batch: ValueBatch, settings: CriticSection, *, seed: int) -> dict[str, float]:
        """Take optimizer steps on the clipped value loss, and return the metrics.

        They train trunk and head, or the head alone on the policy's trunk. `seed` shuffles the sequences into
        mini-batches. The metrics are `value_loss` and
        `value_clip_fraction` (means over targets and steps), `value_gradient_norm` (mean over steps, before clipping),
        `value_mean`, `return_mean`, and `explained_variance`: of the returns by the batch's values, which the critic
        predicted before it learned from these returns; absent where all returns are equal.
        """
        tally, norms = ValueTally(), []
        with reproducible_computing(self._threads):
            for part in batch.parts(settings, seed):
                tally += self._gradient(part, settings)
                norms.append(self.step(settings))
        return value_metrics(tally, norms, batch)

    def loss(
        self, states: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float | None
    ) -> tuple[torch.Tensor, ValueTally]:
        """The clipped value loss, summed over the reply tokens that have a target, and the sums for its metrics.

        `states` are the hidden states that predict the reply tokens, [replies, hidden]. `old_values` are the values
        that the returns were computed with, and `returns` are NaN where there is no target: both [replies].
        """
        taught = ~returns.isnan()
        result = clipped_value_loss(self.values_at(states[taught]), old_values[taught], returns[taught], clip)
        total = result.loss.sum()
        return total, ValueTally(int(taught.sum().item()), total.item(), int(result.clipped.sum().item()))

    def step(self, settings: CriticSection) -> float:
        """Take one AdamW step with the accumulated gradient; return its norm before clipping."""
        return self._optimizer.step(
            learning_rate=settings.learning_rate,
            maximum_gradient_norm=settings.maximum_gradient_norm,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )

    def save(self, folder: Path) -> None:
        """Write head and optimizer into `folder`, and the trunk in Hugging Face's layout where it is the critic's own.

        A critic on the policy's trunk is saved into the policy's folder.
        """
        if self._owns_trunk:
            self._trunk.save_pretrained(folder, max_shard_size="1000GB")
        self._optimizer.save(folder / OPTIMIZER_FILE)
        save_file({name: tensor.cpu() for name, tensor in self.head.state_dict().items()}, folder / VALUE_HEAD_FILE)

    def _gradient(self, part: ValueBatch, settings: CriticSection) -> ValueTally:
        """Accumulate the gradient of a mini-batch's loss, the mean over its targets; return the sums for metrics."""
        old_values, returns = part.per_token()
        tally = ValueTally()
        for micro_batch in self._lay_out(part.sequences, settings.micro_batch_tokens):
            with torch.set_grad_enabled(self._owns_trunk):
                states = reply_states(self._trunk, micro_batch)
            old, wanted = (at_reply_tokens(rows, micro_batch) for rows in (old_values, returns))
            total, reported = self.loss(states, old, wanted, settings.clip)
            (total / part.targets).backward()
            tally += reported
        return tally

    def _lay_out(self, sequences: SequenceBatch, micro_batch_tokens: int) -> list[MicroBatch]:
        packed = is_packable(self._trunk)
        return lay_out(sequences, micro_batch_tokens, self._pad_token, self._trunk.device, packed=packed)

    def _take(self, folder: Path) -> None:
        """Load head and optimizer from a folder that `save` wrote. Raises ArtifactError where the head is missing."""
        path = folder / VALUE_HEAD_FILE
        if not path.is_file():
            raise ArtifactError(f"a critic's folder must hold {VALUE_HEAD_FILE}; {folder} does not: compute it again")
        self.head.load_state_dict(load_file(path))
        self._optimizer.restore(folder / OPTIMIZER_FILE)


def value_metrics(tally: ValueTally, gradient_norms: Sequence[float], batch: ValueBatch) -> dict[str, float]:
    """The metrics of a critic's optimizer steps on a batch, as `Critic.update` lists them."""
    values, returns = batch.pairs()
    explained = explained_variance(values, returns)
    return {
        "value_loss": tally.loss / tally.targets,
        "value_clip_fraction": tally.clipped / tally.targets,
        "value_gradient_norm": sum(gradient_norms) / len(gradient_norms),
        "value_mean": sum(values) / len(values),
        "return_mean": sum(returns) / len(returns),
        **({} if explained is None else {"explained_variance": explained}),
    }
