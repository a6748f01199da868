"""The critic: a value model for the estimators that need a baseline per token (the GAE family).

`turnwise.policy.critic.value_function` computes the values of states; here is what trains it.

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

PPO's clipped value loss (Schulman's code in OpenAI Baselines; described by Huang et al. 2022, "The 37 Implementation
Details of Proximal Policy Optimization", detail 9; the PPO paper, arXiv 1707.06347, has no clip here), per token t:

    V'_t = V_old,t + clip(V_t - V_old,t, -c, c)
    L_t  = 1/2 max((V_t - R_t)^2, (V'_t - R_t)^2)

V_old: the values that the returns R were computed with. The maximum stops the gradient of a value that has moved from
V_old towards R by more than c; one that moved away from R is still pulled back. Without a clip L is half the squared
error. Explained variance: 1 - Var(R - V) / Var(R). 1 is a perfect critic, 0 one that predicts a constant, and below 0
it is worse than a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.config.model_settings import PLAIN, ModelSettings
from turnwise.config.schema import CriticSection
from turnwise.data.tolerance import alike
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.policy.critic.value_function import ComputeStates, ValueFunction
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.determinism import reproducible_computing
from turnwise.policy.metric_sums import ValueTally
from turnwise.policy.model import load_trunk
from turnwise.policy.optimizer import NamedAdamW
from turnwise.policy.scoring import at_reply_tokens
from turnwise.policy.sharding import Peers
from turnwise.policy.slices import whole
from turnwise.seeding import derive

__all__ = ["Critic", "ValueBatch"]

VALUE_HEAD_FILE = "critic/value_head.safetensors"
OPTIMIZER_FILE = "critic/adamw.safetensors"
"""Both are in a subfolder, since engines load every safetensors file next to the model's as weights."""


@dataclass(frozen=True)
class ValueLoss:
    """A loss per token, and where the clip stopped its gradient. Both have the inputs' shape."""

    loss: torch.Tensor
    clipped: torch.Tensor
    """Boolean: true where the clip stopped the gradient."""


def clipped_value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, clip: float | None
) -> ValueLoss:
    """PPO's clipped value loss per token; see the head of this file. Only `values` receives a gradient."""
    error = (values - returns).square()
    if clip is None:
        return ValueLoss(0.5 * error, torch.zeros_like(error, dtype=torch.bool))
    near = old_values + (values - old_values).clamp(-clip, clip)
    clipped_error = (near - returns).square()
    return ValueLoss(0.5 * torch.maximum(error, clipped_error), clipped_error.detach() > error.detach())


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float | None:
    """The share of the returns' variance that the values explain; None where all returns are equal."""
    if alike(returns):
        return None
    errors = [target - value for value, target in zip(values, returns, strict=True)]
    return 1.0 - _variance(errors) / _variance(returns)


def _variance(numbers: Sequence[float]) -> float:
    """The population variance."""
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / len(numbers)


class Critic(ValueFunction):
    """One value function in training. Made by `with_own_trunk`, `on_trunk_of` or `restore`."""

    def __init__(
        self,
        trunk: PreTrainedModel,
        *,
        owns_trunk: bool,
        threads: int,
        model: ModelSettings = PLAIN,
        peers: Peers | None = None,
        compute_states: ComputeStates | None = None,
        heads: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(trunk, threads=threads, peers=peers, compute_states=compute_states, heads=heads, seed=seed)
        self._owns_trunk = owns_trunk
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
        peers: Peers | None = None,
    ) -> Critic:
        """A critic with its own trunk: the architecture of `policy`, with its weights or random ones.

        `settings.initial` chooses the weights; `seed` is that of random ones, and of two heads. Raises
        ConfigurationError unless `settings.trunk` is `own`.
        """
        if settings.trunk != "own":
            raise ConfigurationError(
                f"a critic with a trunk of its own must be set so; found trunk {settings.trunk!r}: use on_trunk_of",
                "TW-critic-trunk",
            )
        random = derive(seed, "critic") if settings.initial == "random" else None
        trunk = load_trunk(policy, model, device, seed=random, held_on=None if peers is None else "cpu")
        heads, head_seed = settings.heads, derive(seed, "value heads")
        return cls(trunk, owns_trunk=True, threads=threads, model=model, peers=peers, heads=heads, seed=head_seed)

    @classmethod
    def on_trunk_of(
        cls,
        model: PreTrainedModel,
        *,
        threads: int,
        folder: Path | None = None,
        peers: Peers | None = None,
        compute_states: ComputeStates | None = None,
    ) -> Critic:
        """A critic that shares the trunk of a learner's model.

        Its head is new, or with `folder` the one that was saved in this policy's folder. `compute_states` is the
        learner's way to the trunk's states.
        """
        critic = cls(model.base_model, owns_trunk=False, threads=threads, peers=peers, compute_states=compute_states)
        if folder is not None:
            critic._take(folder)
        return critic

    @classmethod
    def restore(
        cls,
        folder: Path,
        *,
        threads: int,
        device: str = "cpu",
        model: ModelSettings = PLAIN,
        peers: Peers | None = None,
    ) -> Critic:
        """The critic with its own trunk that was saved in `folder`; it continues exactly, to the bit."""
        trunk = load_trunk(folder, model, device, held_on=None if peers is None else "cpu")
        heads = len(_stored_head(folder)["bias"])
        critic = cls(trunk, owns_trunk=True, threads=threads, model=model, peers=peers, heads=heads)
        critic._take(folder)
        return critic

    @property
    def steps(self) -> int:
        """Optimizer steps taken since the critic was new, those before a restore included."""
        return self._optimizer.steps

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
        """The clipped value loss, summed over heads and reply tokens, and sums for its metrics.

        `states` are the hidden states that predict the reply tokens, [replies, hidden]. `old_values` are the values
        that the returns were computed with: both [replies].
        """
        result = clipped_value_loss(self.values_by_head(states), old_values[:, None], returns[:, None], clip)
        total = result.loss.sum()
        return total, ValueTally(len(returns), total.item(), int(result.clipped.sum().item()))

    def step(self, settings: CriticSection) -> float:
        """Take one AdamW step with the accumulated gradient; return its norm before clipping."""
        if self._peers is not None:
            self._peers.sum_gradients(self.head.parameters())
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
        writes = self._peers is None or self._peers.writes
        if self._owns_trunk and self._peers is not None:
            weights = {name: whole(tensor) for name, tensor in self._trunk.state_dict().items()}
            if writes:
                self._trunk.save_pretrained(folder, state_dict=weights, max_shard_size="1000GB")
        elif self._owns_trunk:
            self._trunk.save_pretrained(folder, max_shard_size="1000GB")
        self._optimizer.save(folder / OPTIMIZER_FILE, writes=writes)
        if writes:
            head = {name: tensor.cpu() for name, tensor in self.head.state_dict().items()}
            save_file(head, folder / VALUE_HEAD_FILE)

    def _gradient(self, part: ValueBatch, settings: CriticSection) -> ValueTally:
        """Accumulate the gradient of a mini-batch's loss, the mean over its targets; return the sums for metrics."""
        old_values, returns = part.per_token()
        tally = ValueTally()
        for micro_batch in self._lay_out(part.sequences, settings.micro_batch_tokens):
            with torch.set_grad_enabled(self._owns_trunk):
                states = self._compute_states(micro_batch)
            old, targets = (at_reply_tokens(rows, micro_batch) for rows in (old_values, returns))
            total, sums = self.loss(states, old, targets, settings.clip)
            (total / len(part.returns.values)).backward()
            tally += sums
        if self._peers is not None:
            tallies = [ValueTally(**each) for each in self._peers.gathered(asdict(tally))]
            tally = sum(tallies[1:], tallies[0])
        return tally

    def _take(self, folder: Path) -> None:
        """Load head and optimizer from a folder that `save` wrote. Raises ArtifactError where the head is missing."""
        self.head.load_state_dict(_stored_head(folder))
        self._optimizer.restore(folder / OPTIMIZER_FILE)


def _stored_head(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / VALUE_HEAD_FILE
    if not path.is_file():
        raise ArtifactError(
            f"a critic's folder must hold {VALUE_HEAD_FILE}; {folder} does not: compute it again",
            "TW-incomplete-policy",
        )
    return load_file(path)


def value_metrics(tally: ValueTally, gradient_norms: Sequence[float], batch: ValueBatch) -> dict[str, float]:
    """The metrics of a critic's optimizer steps on a batch, as `Critic.update` lists them."""
    values, returns = batch.values.values.tolist(), batch.returns.values.tolist()
    explained = explained_variance(values, returns)
    return {
        "value_loss": tally.loss / tally.targets,
        "value_clip_fraction": tally.clipped / tally.targets,
        "value_gradient_norm": sum(gradient_norms) / len(gradient_norms),
        "value_mean": sum(values) / len(values),
        "return_mean": sum(returns) / len(returns),
        **({} if explained is None else {"explained_variance": explained}),
    }
