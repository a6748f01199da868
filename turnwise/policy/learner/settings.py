"""The settings of an update, which are checked before any compute. Nothing here loads torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, get_args

from turnwise.config.bounds import require_choice, require_count, require_number
from turnwise.config.schema import CriticSection
from turnwise.errors import ConfigurationError
from turnwise.policy.learner.aggregation import Aggregation
from turnwise.policy.learner.divergence import ReferencePenalty
from turnwise.policy.learner.importance import ImportanceCorrection
from turnwise.policy.learner.losses import LOSSES
from turnwise.suggestions import nearest

CLIPS = ("clip_low", "clip_high", "dual_clip")
"""The names of clip options; each loss has some of them, or none."""


@dataclass(frozen=True)
class UpdateSettings:
    """How a batch becomes optimizer steps. Raises ConfigurationError for values that are invalid or do not fit."""

    learning_rate: float
    temperature: float
    """The sampling temperature: log-probabilities are computed at it, since the policy that sampled is trained."""
    micro_batch_tokens: int
    """Padded tokens per forward pass. Changes memory and speed; the result only in its rounding."""
    loss: str = "clipped"
    """A name of `turnwise.policy.learner.losses.LOSSES`."""
    clip_low: float | None = None
    """The ratio is clipped below 1 - clip_low. None: the loss's own default."""
    clip_high: float | None = None
    """The ratio is clipped above 1 + clip_high. None: the loss's own default."""
    dual_clip: float | None = None
    """The ratio above which tokens with a negative advantage have no gradient; `clipped` only. None: no such clip."""
    aggregation: Aggregation = "token-mean"
    """How reply tokens are weighted: see `turnwise.policy.learner.aggregation`."""
    aggregation_constant: float | None = None
    """Tokens that the sum over a sample is divided by; required for the aggregation `constant`, refused for others."""
    reference: ReferencePenalty | None = None
    """The penalty for divergence from a reference policy. With place `reward` it is applied before advantages are
    estimated, and not by the learner."""
    entropy_coefficient: float = 0.0
    """Factor, per nat, of the bonus for the entropy of the distribution that each reply token is drawn from."""
    correction: ImportanceCorrection | None = None
    """The correction of the mismatch between engine and learner. It costs one more forward pass over the batch."""
    critic: CriticSection | None = None
    """Settings of a critic on the policy's trunk, whose head takes a step whenever the policy does. None: there is no
    critic, or it has a trunk of its own."""
    epochs: int = 1
    mini_batches: int = 1
    """Optimizer steps per epoch. Above 1 the sequences are shuffled and dealt out as evenly as possible."""
    maximum_gradient_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    maximum_mismatch: float = 0.1
    """Mean |learner - engine| per reply token, in nats, above which nothing is trained and MismatchError is raised."""
    seed: int = 0
    """Seed of the shuffle into mini-batches."""

    def __post_init__(self) -> None:
        require_number("learning_rate", self.learning_rate, above=0)
        require_number(
            "the temperature of an update", self.temperature, above=0, advice="greedy replies have no policy gradient"
        )
        require_count("micro_batch_tokens", self.micro_batch_tokens)
        require_count("epochs", self.epochs)
        require_count("mini_batches", self.mini_batches)
        require_number("maximum_gradient_norm", self.maximum_gradient_norm, above=0)
        if len(self.betas) != 2:
            raise ConfigurationError(f"there must be two betas; found {self.betas!r}")
        for beta in self.betas:
            require_number("each of the betas", beta, at_least=0, below=1)
        require_number("weight_decay", self.weight_decay, at_least=0)
        require_number("maximum_mismatch", self.maximum_mismatch, above=0)
        require_number(
            "entropy_coefficient", self.entropy_coefficient, at_least=0, advice="a bonus below 0 is a race to certainty"
        )
        self._require_loss()
        self._require_aggregation()
        if self.critic is not None and self.critic.trunk != "policy":
            raise ConfigurationError(
                "a critic that learns along with the policy must stand on the policy's trunk; found trunk "
                f"{self.critic.trunk!r}: let it learn by itself, or set its trunk to policy"
            )

    def _require_loss(self) -> None:
        require_choice("loss", self.loss, LOSSES)
        known = [name for name in inspect.signature(LOSSES[self.loss]).parameters if name in CLIPS]
        for name in self.loss_options:
            if name not in known:
                raise ConfigurationError(
                    f"the loss {self.loss!r} has {' and '.join(known) or 'no clip'}; found {name}: "
                    f"{getattr(self, name)}: leave {name} out, or choose another loss"
                )
        if self.clip_low is not None:
            require_number("clip_low", self.clip_low, above=0, at_most=1, advice="at 1 there is no lower clip")
        if self.clip_high is not None:
            require_number("clip_high", self.clip_high, above=0)
        if self.dual_clip is not None:
            require_number("dual_clip", self.dual_clip, above=1, advice="at 1 no negative advantage would count")

    def _require_aggregation(self) -> None:
        require_choice("aggregation", self.aggregation, get_args(Aggregation))
        if self.aggregation == "constant":
            require_number(
                "aggregation_constant",
                self.aggregation_constant,
                above=0,
                advice="the aggregation 'constant' divides by it; the most tokens that a trajectory may reply is usual",
            )
        elif self.aggregation_constant is not None:
            raise ConfigurationError(
                f"aggregation_constant must be left out with the aggregation {self.aggregation!r}, which has none; "
                f"found {self.aggregation_constant}: leave it out, or set aggregation to constant"
            )

    @property
    def loss_options(self) -> dict[str, float]:
        """The clip options that are set, as keyword arguments of the loss; it has its own defaults for the others."""
        return {name: getattr(self, name) for name in CLIPS if getattr(self, name) is not None}

    @property
    def penalty_in_loss(self) -> ReferencePenalty | None:
        """The reference penalty, if its place is the loss; None otherwise."""
        return self.reference if self.reference is not None and self.reference.place == "loss" else None

    @property
    def advantages_alone(self) -> bool:
        """Whether advantages are the only source of gradient, so that a sequence with advantages 0 has none."""
        return self.penalty_in_loss is None and self.entropy_coefficient == 0 and self.critic is None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> UpdateSettings:
        """The settings from plain values as in a configuration, where `reference`, `correction` and `critic` are
        mappings or None.

        Raises ConfigurationError for an unknown, missing or invalid option.
        """
        values = dict(options)
        if values.get("reference") is not None:
            values["reference"] = _make("reference", values["reference"], ReferencePenalty)
        if values.get("correction") is not None:
            values["correction"] = _make("correction", values["correction"], ImportanceCorrection)
        if values.get("critic") is not None:
            values["critic"] = CriticSection(**values["critic"])
        return _make("an update", values, cls)


def require_update_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless `UpdateSettings.from_options` accepts these options together.

    Options without a default may be left out.
    """
    UpdateSettings.from_options({"learning_rate": 1.0, "temperature": 1.0, "micro_batch_tokens": 1, **options})


def require_full_distribution(*, top_p: float = 1.0, top_k: int = 0) -> None:
    """Raise ConfigurationError unless replies are sampled from the full distribution (top_p 1; top_k 0 or -1).

    Every loss here is a policy gradient, whose log-probabilities are those of the full distribution.
    """
    if top_p != 1.0 or top_k not in (0, -1):
        raise ConfigurationError(
            "rollouts that are trained on must sample from the whole distribution: top_p 1 and top_k 0; found "
            f"top_p {top_p} and top_k {top_k}. A policy gradient takes its tokens for samples of the policy that is "
            "trained, which gives every token a probability, while a cut distribution never draws some of them: the "
            "gradient would be biased, and the ratio wrong. Shape the sampling by its temperature instead"
        )


Made = TypeVar("Made", UpdateSettings, ReferencePenalty, ImportanceCorrection)


def _make(name: str, options: Any, made: type[Made]) -> Made:
    """An instance of the dataclass `made` with these options.

    Raises ConfigurationError for an option that `made` does not have, and for one without a default that is missing.
    """
    known = [field.name for field in fields(made)]
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"{name} must be null, or a section with {', '.join(known)}; found {options!r}")
    for option in options:
        if option not in known:
            shown = f"{name}.{option}" if made is not UpdateSettings else repr(option)
            raise ConfigurationError(f"{shown} is not an option of {name}; {nearest(str(option), known)}")
    for field in fields(made):
        if field.default is MISSING and field.name not in options:
            raise ConfigurationError(f"{name} must set {field.name}; found {dict(options)}")
    return made(**options)
