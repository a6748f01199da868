"""The settings of an update, which are checked before any compute. Nothing here loads torch."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from turnwise.config.optimization import Optimization, UpdateOptions
from turnwise.config.options import read_options
from turnwise.config.peer_names import peer_answer
from turnwise.config.quantities import Seed, TrainingTemperature
from turnwise.config.schema import CriticSection, Rollout
from turnwise.errors import ConfigurationError
from turnwise.policy.learner.losses import GRADIENT_WITHOUT_ADVANTAGE, LOSSES
from turnwise.policy.learner.token_selection import ADDS_TO_LOSS, require_token_selection
from turnwise.suggestions import meant

CLIPS = ("clip_low", "clip_high", "dual_clip")
"""The names of clip options; each loss has some of them, or none."""


class UpdateSettings(UpdateOptions):
    """The options of the section `optimization`, with what belongs to one call of `Learner.update`."""

    temperature: TrainingTemperature
    """The sampling temperature: log-probabilities are computed at it, since the policy that sampled is trained."""
    critic: CriticSection | None = None
    """The section of a critic on the policy's trunk, whose head takes a step whenever the policy does. None: there is
    no critic, or it has a trunk of its own."""
    seed: Seed = 0
    """Seed of the shuffle into mini-batches."""
    run_steps: Annotated[int | None, Field(ge=1, validate_default=True)] = None
    """Optimizer steps of the whole run, over which the learning rate falls. None: it does not fall."""

    @field_validator("run_steps")
    @classmethod
    def _require_run_steps(cls, steps: int | None, info: ValidationInfo) -> int | None:
        schedule = info.data.get("learning_rate_schedule", "constant")
        if (schedule == "constant") != (steps is None):
            raise ValueError(
                "must be given for a learning rate that falls, and for no other; found "
                f"{steps} with the schedule {schedule!r}"
            )
        return steps

    @field_validator("critic")
    @classmethod
    def _require_shared_trunk(cls, critic: CriticSection | None) -> CriticSection | None:
        if critic is not None and critic.trunk != "policy":
            raise ValueError(
                "a critic that learns along with the policy must stand on the policy's trunk; found trunk "
                f"{critic.trunk!r}: let it learn by itself, or set its trunk to policy"
            )
        return critic

    @property
    def loss_arguments(self) -> dict[str, Any]:
        """The clips and options that are set, as keyword arguments of the loss; it has its own defaults for others."""
        return {**_clips(self), **self.loss_options}

    @property
    def advantages_alone(self) -> bool:
        """Whether advantages are the only source of gradient, so that a sequence with advantages 0 has none."""
        others = self.penalty_in_loss is not None or self.entropy_coefficient != 0 or self.critic is not None
        pulls = self.token_selection is not None and self.token_selection.rule in ADDS_TO_LOSS
        others = others or self.distillation is not None
        return not (others or pulls) and self.loss not in GRADIENT_WITHOUT_ADVANTAGE


def require_update(optimization: Optimization, rollout: Rollout) -> None:
    """Raise ConfigurationError for a loss that is unknown or has no such clip, for a selection of tokens that is, for
    batches that cannot be dealt, and for a lag that is not corrected.
    """
    require_loss(optimization)
    require_token_selection(optimization.token_selection)
    if rollout.lag and optimization.method == "reinforcement" and optimization.correction is None:
        raise ConfigurationError(
            "optimization.correction must be set where rollout.lag is 1, since each batch is sampled by an older "
            "policy than the one that learns from it; found null: set it to {kind: truncate}, or rollout.lag to 0",
            "TW-uncorrected-lag",
        )
    batch = rollout.prompts * rollout.group_size
    if batch % optimization.mini_batches:
        raise ConfigurationError(
            f"optimization.mini_batches must divide rollout.prompts x rollout.group_size = {batch}; "
            f"found {optimization.mini_batches}",
            "TW-mini-batches",
        )


def require_distillation(optimization: Optimization, *, rewrites_context: bool, learner_processes: int) -> None:
    """Raise ConfigurationError for distillation of episodes of several sequences, or by several processes."""
    if optimization.distillation is None:
        return
    if rewrites_context and optimization.distillation.teacher is None:
        raise ConfigurationError(
            "optimization.distillation shows the policy its whole episode again, with what came of it in the first "
            "message, so that the context must only grow: set agent.context.policy to 'full', agent.thoughts to kept "
            "and agent.mode to plain, or leave it out",
            "TW-context-not-whole",
        )
    if learner_processes > 1:
        raise ConfigurationError(
            "optimization.distillation compares whole distributions, which one process computes; found "
            f"compute.learner_processes: {learner_processes}: set it to 1, or take credit.estimator self-distillation, "
            "which compares the sampled tokens' probabilities",
            "TW-not-in-parallel",
        )


def require_loss(options: UpdateOptions) -> None:
    """Raise ConfigurationError for an unknown loss, and for a clip or an option that the loss does not have."""
    if options.loss not in LOSSES:
        answer = peer_answer("optimization.loss", options.loss) or meant(options.loss, LOSSES)
        raise ConfigurationError(
            f"optimization.loss must be one of {', '.join(LOSSES)}; found {options.loss!r}{answer}", "TW-unknown-loss"
        )
    known = [name for name in inspect.signature(LOSSES[options.loss]).parameters if name in CLIPS]
    for name, value in _clips(options).items():
        if name not in known:
            raise ConfigurationError(
                f"optimization.{name}: the loss {options.loss!r} has {' and '.join(known) or 'no clip'}; found {name}: "
                f"{value}: leave {name} out, or choose another loss",
                "TW-unread-option",
            )
    for name in (name for name in CLIPS if name in options.loss_options):
        raise ConfigurationError(
            f"optimization.loss_options must hold no clip, which is a key of its own; found {name}: set "
            f"optimization.{name}",
            "TW-unread-option",
        )
    try:
        read_options(options.loss, LOSSES[options.loss], options.loss_options)
    except ConfigurationError as error:
        raise ConfigurationError(f"optimization.loss_options: {error}") from None


def _clips(options: UpdateOptions) -> dict[str, float]:
    return {name: getattr(options, name) for name in CLIPS if getattr(options, name) is not None}


def require_full_distribution(*, top_p: float = 1.0, top_k: int = 0) -> None:
    """Raise ConfigurationError unless replies are sampled from the full distribution (top_p 1; top_k 0 or -1).

    Every loss here is a policy gradient, whose log-probabilities are those of the full distribution.
    """
    if top_p != 1.0 or top_k not in (0, -1):
        raise ConfigurationError(
            "rollouts that are trained on must sample from the whole distribution: top_p 1 and top_k 0; found "
            f"top_p {top_p} and top_k {top_k}. A policy gradient takes its tokens for samples of the policy that is "
            "trained, which gives every token a probability, while a cut distribution never draws some of them: the "
            "gradient would be biased, and the ratio wrong. Shape the sampling by its temperature instead",
            "TW-cut-distribution",
        )
