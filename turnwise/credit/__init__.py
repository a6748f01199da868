"""Advantage estimators: pure functions from rewards to advantages.

`estimate(name, batch, **options)` is the whole interface. A batch has one entry per trajectory; the result is an array
with one row per trajectory, and in it one advantage per turn or per reply token. `ESTIMATORS[name]` says which, and
what the batch must hold. `value_targets` returns the targets of a critic. Each estimator's file opens with its
equation, its paper, what differs, and when it is biased; `docs/credit-bias.md` has the biases in numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from turnwise.config.options import read_options
from turnwise.credit.anchor_states import gigpo
from turnwise.credit.batch import CreditBatch
from turnwise.credit.generalised_advantage import bi_level_gae, critic_targets, gae, turn_gae
from turnwise.credit.group_relative import grpo, rloo
from turnwise.credit.reinforce import reinforce_plus_plus, reinforce_plus_plus_baseline
from turnwise.credit.turn_level import mt_grpo
from turnwise.data.arrays import Ragged
from turnwise.errors import ConfigurationError, CreditError
from turnwise.suggestions import meant

__all__ = ["ESTIMATORS", "CreditBatch", "Estimator", "Restriction", "estimate", "require_options", "value_targets"]

_CRITIC = ("reply_lengths", "values")


@dataclass(frozen=True)
class Restriction:
    """What an estimator cannot be used with while one of its options has a certain value."""

    option: str
    value: str
    instead: str
    """Another value of the option, which has no such restriction."""
    most_turns: int | None = None
    """The most turns that a trajectory may have; a summary, a plan or a lesson is a turn. None: any number."""
    token_rewards: bool = True
    """Whether rewards per token, such as a KL penalty, have a place."""


@dataclass(frozen=True)
class Estimator:
    """An advantage estimator, with what it needs: read by the checks of a configuration, before any compute."""

    function: Callable[..., Ragged]
    """Maps a `CreditBatch` and keyword options to advantages, one row per trajectory."""
    level: Literal["turn", "token"]
    """Whether there is one advantage per turn or one per reply token."""
    needs: tuple[str, ...] = ()
    """The fields that a batch must have in addition to `group`, `turn_rewards` and `outcome`. If `values` is among
    them, `bootstrap` is needed too as soon as a trajectory is `truncated`."""
    grouped: bool = False
    """Whether trajectories are compared within their group, so that a group of one has nothing to be compared with."""
    restrictions: tuple[Restriction, ...] = ()
    belongs_to: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Options that belong to certain values of another option, and are None under its other values: by their name, the
    other option and these values."""

    def restriction(self, options: Mapping[str, Any]) -> Restriction | None:
        """The restriction under these options; None where there is none."""
        return next((each for each in self.restrictions if options.get(each.option) == each.value), None)


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": Estimator(grpo, "turn", grouped=True),
    "mt-grpo": Estimator(
        mt_grpo,
        "turn",
        grouped=True,
        restrictions=(Restriction("rule", "paper", instead="return-to-go", most_turns=2, token_rewards=False),),
        belongs_to={"to_go": ("rule", ("per-index", "padded")), "baseline": ("rule", ("return-to-go",))},
    ),
    "rloo": Estimator(rloo, "turn", grouped=True),
    "reinforce++": Estimator(reinforce_plus_plus, "token", needs=("reply_lengths",)),
    "reinforce++-baseline": Estimator(reinforce_plus_plus_baseline, "token", needs=("reply_lengths",), grouped=True),
    "gae": Estimator(gae, "token", needs=_CRITIC),
    "turn-gae": Estimator(turn_gae, "turn", needs=_CRITIC),
    "bi-level-gae": Estimator(bi_level_gae, "token", needs=_CRITIC),
    "gigpo": Estimator(gigpo, "turn", needs=("anchors",), grouped=True),
}
"""The advantage estimators by name."""

_IN_WORDS: Mapping[str, str] = {
    "reply_lengths": "the tokens of each turn's reply",
    "values": "a critic's values per reply token",
    "anchors": "the world's state before each turn",
}


def estimate(name: str, batch: CreditBatch, **options: Any) -> Ragged:
    """The advantages of a batch by the named estimator: one row per trajectory, with one entry per turn or reply token.

    Turns that are not trained get 0. Raises CreditError for an unknown name or option, and for a batch that lacks what
    the estimator needs.
    """
    advantages = _raw(name, batch, options)
    if batch.trained is None:
        return advantages
    trained = batch.trained_turns if ESTIMATORS[name].level == "turn" else batch.trained_tokens
    return Ragged(np.where(trained.values, advantages.values, 0.0), advantages.offsets)


def value_targets(name: str, batch: CreditBatch, **options: Any) -> Ragged:
    """The critic's targets for the named estimator: one row per trajectory, with one target per reply token.

    A target is the advantage before whitening plus the value that was its baseline. Turns that are not trained have
    targets as well. The options are those of `estimate`. Raises CreditError for an estimator without a critic.
    """
    require_options(name, options)
    if "values" not in ESTIMATORS[name].needs:
        with_critic = [known for known in ESTIMATORS if "values" in ESTIMATORS[known].needs]
        raise CreditError(f"estimators with a critic are {', '.join(with_critic)}; found {name!r}, which has none")
    advantages = _raw(name, batch, {**options, "whiten": False})
    return critic_targets(batch, advantages, of_turns=ESTIMATORS[name].level == "turn")


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise CreditError unless `name` is an estimator that has these `options` and accepts their values."""
    if name not in ESTIMATORS:
        raise CreditError(
            f"credit.estimator must be one of {', '.join(sorted(ESTIMATORS))}; found {name!r}{meant(name, ESTIMATORS)}"
        )
    estimator = ESTIMATORS[name]
    try:
        read = read_options(name, estimator.function, options)
    except ConfigurationError as error:
        raise CreditError(str(error)) from None
    for option, (other, values) in estimator.belongs_to.items():
        if read[option] is not None and read[other] not in values:
            raise CreditError(
                f"{option} belongs to {name}'s {other} {' and '.join(values)}; found it with {other} {read[other]!r}"
            )


def _raw(name: str, batch: CreditBatch, options: Mapping[str, Any]) -> Ragged:
    """The advantages of all turns, before those that are not trained are set to 0."""
    require_options(name, options)
    for needed in ESTIMATORS[name].needs:
        if getattr(batch, needed) is None:
            raise CreditError(f"{name!r} needs {needed}, {_IN_WORDS[needed]}; the batch has none")
    return ESTIMATORS[name].function(batch, **options)
