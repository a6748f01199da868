"""The sections of `params.yaml` on how a policy learns: optimization, and AgentEvol."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from turnwise.config.model_settings import Adapter
from turnwise.config.quantities import (
    Batch,
    Betas,
    Count,
    LearningRate,
    NotNegative,
    Number,
    Options,
    Positive,
    Share,
    Tokens,
    Whole,
    because,
)
from turnwise.config.schema import Section, is_none
from turnwise.errors import ConfigurationError

Aggregation = Literal["token-mean", "sequence-mean", "constant", "prompt-mean", "token-sum", "sequence-sum"]
Schedule = Literal["constant", "linear", "cosine"]


class AdaptivePenalty(Section):
    """How the coefficient of a penalty follows the divergence: see `turnwise.policy.adaptive_penalty`."""

    target: Positive
    """The divergence, in nats per reply token, at which the coefficient stays as it is."""
    horizon: Count = 10_000
    """Samples over which the coefficient changes by a fifth of itself, at most."""


class ReferencePenalty(Section):
    """The penalty for divergence from the warm start: see `turnwise.policy.divergence`."""

    coefficient: Annotated[Positive, because("for no penalty set reference to null")]
    """Factor of the divergence, per nat."""
    estimator: Literal["k1", "k2", "k3", "k3+"] = "k2"
    """How the divergence is estimated from the log-probabilities of the sampled tokens."""
    place: Annotated[Literal["loss", "reward"], Field(validate_default=True)] = "loss"
    """`loss`: added to the loss of the update. `reward`: subtracted from the rewards before advantages are
    estimated."""
    reweighted: bool = False
    """Whether the estimate of a token is multiplied by the ratio r, which is differentiated too. For k3 in the loss."""
    clamp: Positive | None = None
    """The largest value of k3 for a token, above which it has no gradient: 10 in verl, SkyRL, ROLL and OpenRLHF. null:
    none, the equation as it is, as in TRL."""

    adaptive: AdaptivePenalty | None = None
    """Adapt the coefficient after each iteration, from the one above. For a penalty in the loss. null: it stays."""

    @field_validator("adaptive")
    @classmethod
    def _require_loss(cls, adaptive: AdaptivePenalty | None, info: ValidationInfo) -> AdaptivePenalty | None:
        if adaptive is not None and info.data.get("place") == "reward":
            raise ConfigurationError(
                "must be left out with place reward, since it follows the divergence that an update measures; found "
                "both: set place to loss, or leave it out",
                "TW-unread-option",
            )
        return adaptive

    @field_validator("clamp")
    @classmethod
    def _require_k3(cls, clamp: float | None, info: ValidationInfo) -> float | None:
        if clamp is not None and info.data.get("estimator", "k3") not in ("k3", "k3+"):
            raise ConfigurationError(
                f"belongs to the estimator k3, whose exponential it bounds; found {clamp} with "
                f"{info.data['estimator']}: leave it out, or set estimator to k3",
                "TW-unread-option",
            )
        return clamp

    @field_validator("reweighted")
    @classmethod
    def _require_unbiased(cls, reweighted: bool, info: ValidationInfo) -> bool:
        estimator, place = info.data.get("estimator", "k3"), info.data.get("place", "loss")
        if reweighted and (estimator != "k3" or place != "loss"):
            raise ConfigurationError(
                "must be false but for the estimator k3 in the loss, whose gradient becomes that of KL(pi || ref); "
                f"found {estimator} in the {place}: leave it out, or set estimator to k3 and place to loss",
                "TW-conflicting-options",
            )
        return reweighted

    @field_validator("place")
    @classmethod
    def _require_gradient(cls, place: str, info: ValidationInfo) -> str:
        if place == "loss" and info.data.get("estimator") == "k1":
            raise ConfigurationError(
                "must be reward for the estimator k1, whose gradient in the loss is that of log pi(token), zero in "
                "expectation: it adds noise, holds nothing back; found loss: set place to reward, or estimator to k2",
                "TW-conflicting-options",
            )
        if place == "reward" and info.data.get("estimator") == "k3+":
            raise ConfigurationError(
                "must be loss for the estimator k3+, which is k3 with the gradient of k2: a reward has none; found "
                "reward: set estimator to k3, or place to loss",
                "TW-conflicting-options",
            )
        return place


_NO_MISMATCH = because("a weight of 1 is no mismatch at all")


class SequenceMask(Section):
    """Which sequences are trained on, by how far engine and learner are apart on them: see `ImportanceCorrection`."""

    over: Literal["mean", "sum", "maximum"]
    """Of the sequence's reply tokens; of k1 `maximum` means that every token's ratio must be within the bounds."""
    of: Literal["k1", "k2", "k3"]
    """The estimator of the divergence between engine and learner."""
    high: Positive
    """The largest value: for k1 of the ratio exp(k1), for k2 and k3 in nats."""
    low: Positive | None = None
    """The smallest ratio, for k1. null: 1 / high."""

    @field_validator("high")
    @classmethod
    def _require_ratio(cls, high: float, info: ValidationInfo) -> float:
        if info.data.get("of") == "k1" and high < 1.0:
            raise ConfigurationError(
                f"must be at least 1 for k1: a ratio of 1 is no mismatch at all; found {high}", "TW-option-range"
            )
        return high

    @field_validator("low")
    @classmethod
    def _require_k1(cls, low: float | None, info: ValidationInfo) -> float | None:
        if low is not None and info.data.get("of", "k1") != "k1":
            raise ConfigurationError(
                f"must be left out but for k1, which has a sign; found {low} with {info.data['of']}", "TW-unread-option"
            )
        if low is not None and low > 1.0:
            raise ConfigurationError(
                f"must be at most 1: a ratio of 1 is no mismatch at all; found {low}", "TW-option-range"
            )
        return low

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value with which a sequence is kept: ratios for k1, nats for the others."""
        if self.of != "k1":
            return 0.0, self.high
        return 1.0 / self.high if self.low is None else self.low, self.high


class ImportanceCorrection(Section):
    """The correction of the mismatch between engine and learner, and of `rollout.lag`, by weights: see
    `turnwise.policy.learner.importance`.

    It costs one more forward pass over the batch.
    """

    kind: Literal["truncate", "mask", "none"]
    """What is done with weights that are out of bounds. `none`: there are no weights, only `sequence_mask`."""
    level: Literal["token", "sequence"] = "token"
    """What has a weight of its own."""
    high: Annotated[float, Field(ge=1.0, le=1e9, allow_inf_nan=False), _NO_MISMATCH] | None = None
    """The largest weight. null: 2 for `truncate`, 5 for `mask`."""
    low: Annotated[Share, _NO_MISMATCH] | None = None
    """The smallest weight: that `mask` keeps, null: 0.5; that `truncate` lifts smaller ones to, null: none."""
    over_mean: bool = False
    """Whether weights are divided by their mean over the batch: over its reply tokens, or its sequences."""
    sequence_mask: SequenceMask | None = Field(None, validate_default=True)
    """Sequences that are left out as a whole. null: none."""

    @field_validator("high", "low", "over_mean")
    @classmethod
    def _require_weights(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, False) and info.data.get("kind") == "none":
            raise ConfigurationError(
                f"must be left out with kind none, which has no weights; found {value}: leave it out",
                "TW-unread-option",
            )
        return value

    @field_validator("sequence_mask")
    @classmethod
    def _require_something(cls, mask: SequenceMask | None, info: ValidationInfo) -> SequenceMask | None:
        if mask is None and info.data.get("kind") == "none":
            raise ConfigurationError(
                "must be set with kind none, which corrects nothing else; found null: set kind, or this",
                "TW-missing-option",
            )
        return mask

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest weight that are left unchanged."""
        if self.kind == "truncate":
            return self.low or 0.0, 2.0 if self.high is None else self.high
        return 0.5 if self.low is None else self.low, 5.0 if self.high is None else self.high


class TokenSelection(Section):
    """Which reply tokens the policy loss counts: see `turnwise.policy.learner.token_selection`."""

    rule: str
    """`clip-cov`, `kl-cov` or `top-entropy`."""
    options: Options = Field(default_factory=dict)
    """Of that rule."""


class Distillation(Section):
    """What is learned from a teacher's whole distribution: see `turnwise.policy.learner.distillation`."""

    weight: Annotated[Share, Field(gt=0.0), because("for no distillation set it to null")] = 1.0
    """Of the divergence in the loss; the policy loss has the rest. With 1 no advantage counts."""
    interpolation: Share = 1.0
    """0: KL(teacher || policy). 1: KL(policy || teacher). Between them: their generalised Jensen-Shannon divergence."""
    teacher: str | None = None
    """The model that is learned from, as in `policy.model`: a directory, a base policy or a hub id, with the policy's
    tokens. null: the policy itself, which is shown what came of the episode."""


class UpdateOptions(Section):
    """How a batch becomes optimizer steps: what the learner reads of the section `optimization`."""

    learning_rate: LearningRate
    learning_rate_warmup: Whole = 0
    """Optimizer steps, from the run's first, over which the learning rate grows from zero."""
    learning_rate_schedule: Schedule = "constant"
    """How the learning rate falls over the optimizer steps of a run: see `turnwise.policy.learner.schedule`."""
    final_learning_rate_share: Share | None = None
    """What is left of the learning rate at the last step, for a schedule other than `constant`. null: nothing."""
    loss: str = "clipped"
    """A name of `turnwise.policy.learner.losses.LOSSES`, such as `clipped`, `gspo`, `cispo`, `sapo` or `reinforce`."""
    loss_options: Options = Field(default_factory=dict)
    """Keyword options of the loss besides its clips, which are keys of their own."""
    clip_low: Annotated[Positive, Field(le=1.0), because("at 1 there is no lower clip")] | None = None
    """The ratio is clipped below 1 - clip_low. null: the loss's own default, 0.2 for `clipped`."""
    clip_high: Positive | None = None
    """The ratio is clipped above 1 + clip_high. null: the loss's own default."""
    dual_clip: Annotated[Positive, Field(gt=1.0), because("at 1 no negative advantage would count")] | None = None
    """The ratio above which tokens with a negative advantage have no gradient; `clipped` alone. null: none, as in the
    paper of PPO, TRL, OpenRLHF and SkyRL; verl has it always on, at 3.0 (`clip_ratio_c`)."""
    aggregation: Aggregation = "token-mean"
    """How reply tokens are weighted: see `turnwise.policy.learner.update`."""
    aggregation_constant: Annotated[Positive | None, Field(validate_default=True)] = None
    """Tokens that the sum over a sample is divided by; for the aggregation `constant`, and null for others."""
    entropy_coefficient: Annotated[NotNegative, because("a bonus below 0 is a race to certainty")] = 0.0
    """Factor, per nat, of the bonus for the entropy of the distribution that each reply token is drawn from. Tokens
    weigh as in the aggregation of the loss, as in verl; TRL's bonus is a mean over all tokens, whatever that is."""
    reference: ReferencePenalty | None = None
    """The penalty for divergence from the warm start. null: none."""
    correction: ImportanceCorrection | None = None
    """The correction of what engine and learner differ in, and of `rollout.lag`. null: none."""
    token_selection: Annotated[TokenSelection | None, Field(exclude_if=is_none)] = None
    """Reply tokens that the policy loss leaves out, or holds where they are. null: none."""
    off_policy_bound: Annotated[Positive | None, Field(exclude_if=is_none)] = None
    """In nats: a token with a negative advantage has no loss where its sequence's mean of log mu - log pi is above
    this, mu being the engine and pi the policy at that step (DeepSeek-V3.2). null: no bound."""
    distillation: Annotated[Distillation | None, Field(exclude_if=is_none)] = None
    """Learn from a teacher over the whole vocabulary: another model, or the policy in hindsight. null: from none."""
    mini_batches: Batch = 1
    """Optimizer steps per epoch; must divide prompts x group_size. Above 1 the sequences are shuffled and dealt out as
    evenly as possible."""
    epochs: Batch = 1
    """Passes over a batch."""
    betas: Betas = (0.9, 0.999)
    """AdamW's decay rates, of the mean of the gradients and of that of their squares."""
    weight_decay: NotNegative = 0.0
    maximum_gradient_norm: Positive = 1.0
    micro_batch_tokens: Tokens
    """Tokens, padding included, that go through the model at once. Where sequences begin alike, fewer are computed.
    Changes memory and speed; the result only in its rounding."""
    maximum_mismatch: Positive = 0.1
    """Mean |learner - engine| per reply token, in nats, above which nothing is trained and the run is stopped. Both
    hold the policy that sampled: a `rollout.lag` is no mismatch."""

    @field_validator("final_learning_rate_share")
    @classmethod
    def _require_schedule(cls, share: float | None, info: ValidationInfo) -> float | None:
        if share is not None and info.data.get("learning_rate_schedule") == "constant":
            raise ConfigurationError(
                f"must be left out with the schedule 'constant', which never falls; found {share}: leave it out, or "
                "set learning_rate_schedule to linear or cosine",
                "TW-unread-option",
            )
        return share

    @field_validator("aggregation_constant")
    @classmethod
    def _require_constant(cls, constant: float | None, info: ValidationInfo) -> float | None:
        if "aggregation" not in info.data:
            return constant
        if info.data["aggregation"] == "constant" and constant is None:
            raise ConfigurationError(
                "must be a number above 0; found None: the aggregation 'constant' divides by it; the most tokens that "
                "a trajectory may reply is usual",
                "TW-missing-option",
            )
        if info.data["aggregation"] != "constant" and constant is not None:
            raise ConfigurationError(
                f"must be left out with the aggregation {info.data['aggregation']!r}, which has none; found "
                f"{constant}: leave it out, or set aggregation to constant",
                "TW-unread-option",
            )
        return constant

    @property
    def penalty_in_loss(self) -> ReferencePenalty | None:
        """The reference penalty, if its place is the loss; None otherwise."""
        return self.reference if self.reference is not None and self.reference.place == "loss" else None


class Optimization(UpdateOptions):
    """How a policy learns: the section `optimization`."""

    method: Literal["reinforcement", "evolution"]
    """By credit and a policy gradient, or by imitating its own successes, as AgentEvol does. Of the other keys,
    evolution reads what a supervised step has: learning rate, adapter, weight decay, maximum gradient norm,
    micro-batches."""
    iterations: Count
    adapter: Adapter | None
    """Train a low-rank adapter and nothing else; the warm start trains everything. null: train everything."""
    sample: Literal["trajectory", "turn"]
    """What a sequence of the update is: a whole trajectory, or each of its turns with what came before it (RAGEN)."""


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
