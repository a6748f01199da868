"""The advantage estimators by name, what each needs, and how one is applied to a batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from turnwise.config.options import read_options
from turnwise.config.peer_names import peer_answer
from turnwise.credit.anchor_states import gigpo, hgpo
from turnwise.credit.batch import NAMED, NEEDS, CreditBatch, turn_means
from turnwise.credit.decoupled_rewards import gdpo
from turnwise.credit.distillation import self_distillation
from turnwise.credit.generalised_advantage import (
    bi_level_gae,
    critic_targets,
    cross_level_gae,
    gae,
    length_adaptive_gae,
    turn_gae,
)
from turnwise.credit.group_baselines import gpg, grpo_passk, maxrl, opo
from turnwise.credit.group_relative import grpo, rloo, tree_grpo
from turnwise.credit.parts import divided
from turnwise.credit.reinforce import reinforce_plus_plus, reinforce_plus_plus_baseline
from turnwise.credit.token_baseline import optimal_token_baseline
from turnwise.credit.tree_values import at2po
from turnwise.credit.turn_critic import archer, archer_targets, sweet_rl, sweet_rl_targets
from turnwise.credit.turn_level import mt_grpo
from turnwise.credit.turn_returns import information_gain, remax, trace, turn_reinforce
from turnwise.data.arrays import Advantages, Ragged
from turnwise.errors import ConfigurationError, CreditError
from turnwise.plugins import CREDIT_RULE, installed, is_named, plugin
from turnwise.world import quoted

if TYPE_CHECKING:  # a section's values are parameters of a stage, and are in its cache key by themselves
    from turnwise.config.schema import Credit, ThoughtCredit

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
    relative: bool = True
    """Of a rule that compares: whether a constant that is added to every reward of a group changes nothing. False where
    the rule divides by what was earned."""
    token_rewards: bool = True
    """Whether rewards per token, such as a KL penalty, have a place."""
    target_options: Mapping[str, Any] = field(default_factory=dict)
    """Of a rule with a critic: its options where the critic's targets are computed with others than the advantages."""
    targets: Callable[..., Ragged] | None = None
    """Of a rule with a critic: maps the same to the critic's targets per reply token. None: advantages plus values."""
    restrictions: tuple[Restriction, ...] = ()
    belongs_to: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Options that belong to certain values of another option, and are None under its other values: by their name, the
    other option and these values."""
    distributions: tuple[str, ...] = ()
    """Of a plug-in: the installed packages, as pip calls them, whose version may change an advantage. They are looked
    for before anything is computed, and their versions are part of the cache key."""

    def restriction(self, options: Mapping[str, Any]) -> Restriction | None:
        """The restriction under these options and the defaults of the others; None where there is none."""
        settings = read_options(self.function.__name__, self.function, options)
        return next((each for each in self.restrictions if settings.get(each.option) == each.value), None)


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
    "hgpo": Estimator(hgpo, "turn", needs=("anchors",), grouped=True),
    "opo": Estimator(opo, "turn", needs=("reply_lengths",), grouped=True),
    "gpg": Estimator(gpg, "turn", grouped=True),
    "maxrl": Estimator(maxrl, "turn", grouped=True, relative=False),
    "grpo-passk": Estimator(grpo_passk, "turn", grouped=True),
    "gdpo": Estimator(gdpo, "turn", needs=NAMED, grouped=True, token_rewards=False),
    "turn-reinforce": Estimator(turn_reinforce, "turn", belongs_to={"deviation": ("over", ("group", "batch"))}),
    "length-adaptive-gae": Estimator(length_adaptive_gae, "token", needs=_CRITIC, target_options={"alpha": None}),
    "cross-level-gae": Estimator(cross_level_gae, "token", needs=_CRITIC, target_options={"weight": 0.0}),
    "archer": Estimator(archer, "turn", needs=_CRITIC, targets=archer_targets),
    "sweet-rl": Estimator(sweet_rl, "turn", needs=_CRITIC, targets=sweet_rl_targets),
    "remax": Estimator(remax, "turn", needs=("greedy_rewards",)),
    "information-gain": Estimator(information_gain, "turn", needs=("answer_scores",)),
    "trace": Estimator(trace, "turn", needs=("start_answer_scores",)),
    "tree-grpo": Estimator(tree_grpo, "turn", needs=("trees",), grouped=True),
    "at2po": Estimator(at2po, "turn", needs=("trees", "nodes", "surprisals"), grouped=True),
    "self-distillation": Estimator(self_distillation, "token", needs=("reply_lengths", "hindsight")),
    "optimal-token-baseline": Estimator(
        optimal_token_baseline, "token", needs=("reply_lengths", "score_norms"), grouped=True
    ),
}
"""The advantage estimators of this package by name; `estimator_of` finds those of others as well."""


def estimator_of(name: str) -> Estimator:
    """The estimator of a name: one of `ESTIMATORS`, or a plug-in (`turnwise.plugins`).

    A plug-in that is a plain function is read as an `Estimator` of turns that compares within groups and needs nothing
    else. Raises CreditError where there is none, or what is named is neither.
    """
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    if not is_named(CREDIT_RULE, name) and (answer := peer_answer("credit.estimator", name)):
        known = ", ".join([*ESTIMATORS, *installed(CREDIT_RULE)])
        raise CreditError(
            f"credit.estimator must be one of {known}, or 'module:name'; found {name!r}{answer}", "TW-unknown-estimator"
        )
    try:
        loaded = plugin(CREDIT_RULE, "credit.estimator", name, sorted(ESTIMATORS))
    except ConfigurationError as error:
        raise CreditError(str(error)) from error
    if isinstance(loaded, Estimator):
        return loaded
    if inspect.isfunction(loaded):
        return Estimator(loaded, "turn", grouped=True)
    raise CreditError(
        f"credit.estimator {name!r} must name an Estimator of turnwise.credit, or a function from a CreditBatch to "
        f"advantages; found {loaded!r}",
        "TW-plugin-kind",
    )


def estimate(name: str, batch: CreditBatch, **options: Any) -> Ragged:
    """The advantages of a batch by the named estimator: one row per trajectory, with one entry per turn or reply token.

    Turns that are not trained get 0. Raises CreditError for an unknown name or option, and for a batch that lacks what
    the estimator needs.
    """
    advantages = _raw(name, batch, options)
    if batch.trained is None:
        return advantages
    trained = batch.trained_turns if estimator_of(name).level == "turn" else batch.trained_tokens
    return Ragged(np.where(trained.values, advantages.values, 0.0), advantages.offsets)


def value_targets(name: str, batch: CreditBatch, **options: Any) -> Ragged:
    """The critic's targets for the named estimator: one row per trajectory, with one target per reply token.

    A target is the advantage before whitening (the option `whiten`, where the estimator has it, is turned off) plus the
    value that was its baseline, with the rule's `target_options` in place of its own. Turns that are not trained have
    targets as well. A rule with `targets` has its own. The options are those of `estimate`.
    Raises CreditError for an estimator without a critic.
    """
    require_options(name, options)
    if "values" not in estimator_of(name).needs:
        with_critic = [rule for rule in ESTIMATORS if "values" in ESTIMATORS[rule].needs]
        raise CreditError(
            f"estimators with a critic are {', '.join(with_critic)}; found {name!r}, which has none", "TW-no-critic"
        )
    if (targets := estimator_of(name).targets) is not None:
        own = targets(batch, **options)
        return own if name in ESTIMATORS else _require_rows(repr(name), batch.trained_tokens, own, "target per token")
    settings = read_options(name, estimator_of(name).function, options)
    further = {**({"whiten": False} if "whiten" in settings else {}), **estimator_of(name).target_options}
    advantages = _raw(name, batch, {**options, **further})
    return critic_targets(batch, advantages, per_turn=estimator_of(name).level == "turn")


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise CreditError unless `name` is an estimator that has these `options` and accepts their values."""
    estimator = estimator_of(name)
    try:
        settings = read_options(name, estimator.function, options)
    except ConfigurationError as error:
        raise CreditError(str(error)) from None
    for option, (other, values) in estimator.belongs_to.items():
        if settings[option] is not None and settings[other] not in values:
            raise CreditError(
                f"{option} belongs to {name}'s {other} {' and '.join(values)}; found it with {other} "
                f"{settings[other]!r}",
                "TW-unread-option",
            )


def _raw(name: str, batch: CreditBatch, options: Mapping[str, Any]) -> Ragged:
    """The advantages of all turns, before those that are not trained are set to 0."""
    require_options(name, options)
    estimator = estimator_of(name)
    for needed in estimator.needs:
        if getattr(batch, needed) is None:
            raise CreditError(f"{name!r} needs {needed}, {NEEDS[needed]}; the batch has none", "TW-rule-lacks-input")
    advantages = estimator.function(batch, **options)
    if name in ESTIMATORS:
        return advantages
    if estimator.level == "turn":
        return _require_rows(repr(name), batch.trained_turns, advantages, "advantage per turn")
    return _require_rows(repr(name), batch.trained_tokens, advantages, "advantage per token")


def _require_rows(what: str, expected: Ragged, returned: Any, entry: str) -> Ragged:
    """What a plug-in returned, as an array. Raises CreditError unless it is finite and has the shape of `expected`."""
    try:
        rows = returned if isinstance(returned, Ragged) else Ragged.of(returned)
    except (TypeError, ValueError) as error:  # None, texts, complex numbers, rows that are single numbers
        raise CreditError(
            f"{what} must return one row of numbers per trajectory; found {quoted(returned)}, of which none can be "
            "made",
            "TW-advantage-shape",
        ) from error
    if not np.array_equal(rows.offsets, expected.offsets):
        raise CreditError(
            f"{what} must return one row per trajectory, with one {entry}: "
            f"{expected.lengths.tolist()[:8]}; found {rows.lengths.tolist()[:8]}",
            "TW-advantage-shape",
        )
    if not np.isfinite(rows.values).all():
        raise CreditError(f"{what} must return finite numbers; found {rows.values.tolist()[:8]}", "TW-not-finite")
    return rows


def rules_of(credit: Credit) -> list[Credit | ThoughtCredit]:
    """The rules that are configured, with their options: of replies, or of actions and of thoughts."""
    return [credit] if credit.thought is None else [credit, credit.thought]


def rollout_advantages(
    trajectories: Sequence[int], batch: CreditBatch, credit: Credit, thought_lengths: Ragged | None = None
) -> Advantages:
    """The advantages of a batch as configured.

    `trajectories` are the batch's indices in the rollout. `thought_lengths` has the number of thought tokens of each
    turn's reply; it is needed where thoughts have credit of their own. Raises CreditError as `estimate` does.
    """
    advantages = estimate(credit.estimator, batch, **credit.options)
    estimator = estimator_of(credit.estimator)
    tokens = advantages if estimator.level == "token" else None
    targets = None
    if "values" in estimator.needs:
        targets = value_targets(credit.estimator, batch, **credit.options)
    if credit.thought is not None:
        assert thought_lengths is not None, "thoughts that have credit of their own must have been found"
        thought_advantages = estimate(credit.thought.estimator, batch, **credit.thought.options)
        if estimator_of(credit.thought.estimator).level == "turn":
            thought_advantages = batch.on_reply_tokens(thought_advantages)
        action_advantages = batch.on_reply_tokens(advantages) if tokens is None else tokens
        tokens = divided(batch, action_advantages, thought_advantages, thought_lengths, credit.thought.weight)
    turns = advantages if tokens is None else turn_means(batch, tokens)
    return Advantages(np.array(trajectories, dtype=np.int64), turns, tokens, targets)
