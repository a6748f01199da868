"""The sections of `params.yaml` on how a policy learns: optimization with its adapter, and AgentEvol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from turnwise.config.model_settings import LINEAR_LAYERS
from turnwise.config.quantities import (
    Batch,
    Count,
    LearningRate,
    NotNegative,
    Number,
    Options,
    Positive,
    Seed,
    Share,
    Tokens,
)
from turnwise.config.schema import Section


class Adapter(Section):
    """A low-rank adapter (LoRA): see `turnwise.policy.model`."""

    rank: Batch
    alpha: Batch
    """The adapter's product is multiplied by alpha / rank."""
    target_modules: Annotated[tuple[str, ...], Field(strict=False)] = LINEAR_LAYERS
    """The linear layers that have one, by the last part of their name."""
    seed: Seed = 0
    """Of the initial weights."""


class Optimization(Section):
    """The update: see `turnwise.policy.learner.settings`, which knows what makes sense together."""

    method: Literal["reinforcement", "evolution"]
    """How a policy learns from what it has sampled: by credit and a policy gradient, or by imitating its own successes,
    as AgentEvol does. Of what follows, evolution reads what a supervised step has: learning rate, adapter, weight
    decay, maximum gradient norm, micro-batches."""
    iterations: Count
    learning_rate: LearningRate
    adapter: Adapter | None
    """Train a low-rank adapter and nothing else; the warm start trains everything. null: train everything."""
    sample: Literal["trajectory", "turn"]
    """What a sequence of the update is: a whole trajectory, or each of its turns with what came before it (RAGEN)."""
    loss: str
    """`clipped`, `gspo`, `cispo` or `reinforce`."""
    clip_low: Positive | None
    """null: the loss's own default, 0.2 for `clipped`. So for the next."""
    clip_high: Positive | None
    dual_clip: Positive | None
    """The ratio above which a negative advantage stops counting; `clipped` alone. null: none."""
    aggregation: str
    """`token-mean`, `sequence-mean`, `prompt-mean`, or `constant`, the sum over `aggregation_constant`."""
    aggregation_constant: Positive | None
    entropy_coefficient: NotNegative
    """Of the bonus for entropy, per nat."""
    reference: Options | None
    """The price of distance from the warm start: `coefficient`, `estimator` (k1, k2, k3), `place` (loss, reward)."""
    correction: Options | None
    """Of the mismatch between engine and learner: `kind` (truncate, mask), `level` (token, sequence), `high`, `low`."""
    mini_batches: Batch
    """Optimizer steps per pass over a batch; must divide prompts x group_size."""
    epochs: Batch
    """Passes over a batch."""
    weight_decay: NotNegative
    maximum_gradient_norm: Positive
    micro_batch_tokens: Tokens
    """Tokens, padding included, that go through the model at once. Changes memory and speed, not what is computed."""
    maximum_mismatch: Positive
    """Mean absolute difference of log-probabilities between engine and learner above which a run is stopped."""

    @property
    def update_options(self) -> dict[str, Any]:
        """The options of `turnwise.policy.learner.settings.UpdateSettings`; the other keys are read elsewhere."""
        return self.model_dump(exclude={"method", "iterations", "sample", "adapter"})


class Evolution(Section):
    """AgentEvol, for `optimization.method: evolution`: see `turnwise.credit.rejection_sampling`."""

    threshold: Number
    """What an episode must reach in the world's primary metric to be imitated."""
    steps: Count
    """Supervised steps per iteration."""
    batch: Batch
    """Sequences per step."""
    demonstration_share: Share
    """Of the sequences of a step, those that are demonstrations. With 1 nothing of its own is imitated: more cloning,
    to compare with."""
    start: Literal["policy", "warm_start"]
    """Where each fine-tuning begins: at the policy that sampled, or afresh at the warm start."""
