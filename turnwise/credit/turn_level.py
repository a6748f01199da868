"""MT-GRPO: one advantage per turn. r_(i,t) is a turn reward, a and c are `turn_coefficient` and `outcome_coefficient`.

    paper (two turns):   A_1 = a * norm(sum of r) + c * norm(outcome),   A_2 = norm(outcome)

    per-index, padded:   A_(i,t) = a * (sum over s >= t of norm(r_s)_i) + c * norm(outcome)_i
        per-index: norm(r_s) is over the trajectories that reach turn s
        padded:    norm(r_s) is over the whole group, where a trajectory that has ended before turn s counts as 0
        without `to_go` a turn gets norm(r_t)_i alone, instead of the sum

    return-to-go:        R_(i,t) = a * (sum over s >= t of r_(i,s)) + c * outcome_i
                         A_(i,t) = R_(i,t) - mean of R_(j,t) over the *other* trajectories j that reach turn t

Paper: MT-GRPO (arXiv 2505.11821, section 4.2) for two turns. For more, the paper asks for a fresh group from each
turn's state, G^(K-1) trajectories; the three rules for K turns need only the one group. `return-to-go` is ours; it is
the unbiased one for K turns, as `docs/credit-bias.md` shows in numbers, and therefore the default. Differs from the
released code: a coefficient on either term (the paper puts it on the outcome, the code on the turn); a trajectory of
one turn in a group of two-turn ones has turn reward and outcome normalised apart, as theirs are, where the code
normalises their sum. epsilon is the code's, 1e-4.

The rule is chosen by configuration, never by the lengths in the batch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnwise.config.quantities import NotNegative, Number
from turnwise.credit.batch import CreditBatch
from turnwise.credit.group_relative import Deviation, against_others, normalise, scale
from turnwise.credit.placement import own_rewards
from turnwise.data.arrays import Numbers, Ragged
from turnwise.errors import CreditError

Rule = Literal["paper", "per-index", "padded", "return-to-go"]
Baseline = Literal["others", "group"]
Rows = list[list[float]]
"""Numbers per turn of a group's trajectories, in the order of its members."""


@dataclass(frozen=True)
class _Terms:
    """The options that the rules share."""

    turn: float
    outcome: float
    deviation: Deviation
    epsilon: float
    to_go: bool
    baseline: Baseline

    def normalised(self, values: Sequence[float]) -> list[float]:
        normalised: list[float] = normalise(values, self.deviation, self.epsilon).tolist()
        return normalised


def mt_grpo(
    batch: CreditBatch,
    *,
    rule: Rule = "return-to-go",
    turn_coefficient: Number = 1.0,
    outcome_coefficient: Number = 1.0,
    deviation: Deviation | None = None,
    epsilon: NotNegative = 1e-4,
    to_go: bool | None = None,
    baseline: Baseline | None = None,
) -> Ragged:
    """One advantage per turn. Rewards per token are added to their turn's reward.

    `deviation` defaults to `none` for `return-to-go`, which leaves the scale of the rewards alone, and to `unbiased`
    for the other rules, as in the paper: the two give advantages of different scales, which need different learning
    rates. `to_go` (default: true) belongs to `per-index` and `padded`; `baseline` (default: `others`) belongs to
    `return-to-go`, where `group` includes the trajectory itself in the mean. Raises CreditError for `paper` with a
    trajectory of more than two turns or with rewards per token.
    """
    if deviation is None:
        deviation = "none" if rule == "return-to-go" else "unbiased"
    terms = _Terms(turn_coefficient, outcome_coefficient, deviation, epsilon, to_go is not False, baseline or "others")
    rewards = own_rewards(batch).tolist()
    advantages: list[list[float]] = [[] for _ in range(len(batch))]
    for members in batch.members.values():
        member_advantages = _RULES[rule](batch, members, [rewards[index] for index in members], terms)
        for index, turns in zip(members, member_advantages, strict=True):
            advantages[index] = turns
    return Ragged.of(advantages)


def _paper(batch: CreditBatch, members: list[int], rewards: Rows, terms: _Terms) -> Rows:
    """The rule `paper`, for at most two turns.

    A trajectory of one turn (a direct answer) gets A_1: in its only turn it chose not to call the tool, and its turn
    reward, 0, is compared with those of the trajectories that did. By the outcome alone that choice would not be
    compared with what calling the tool earned, which is how GRPO-OR unlearns the tool.

    Biased where the second turn earns a turn reward, since A_2 does not include it. Otherwise the gradient is scaled by
    (G - 1) / G with `deviation: none`; a deviation scales the two terms of A_1 differently, which changes the direction
    of the first turn's gradient.
    """
    longest = max(map(len, rewards))
    if longest > 2:
        raise CreditError(
            f"mt-grpo with rule 'paper' is defined on at most two turns; found a trajectory of {longest}; "
            "set credit.options.rule to 'return-to-go', or the world's turn limit to 2",
            "TW-too-many-turns",
        )
    if batch.token_rewards is not None:
        raise CreditError(
            "mt-grpo with rule 'paper' has no place for token_rewards, since its second turn has no turn reward; "
            "put the KL penalty into the loss, or set credit.options.rule to 'return-to-go'",
            "TW-no-token-rewards",
        )
    turn = terms.normalised([math.fsum(turns) for turns in rewards])
    outcome = terms.normalised([batch.outcome[index] for index in members])
    return [
        [terms.turn * first + terms.outcome * last, last][: len(turns)]
        for turns, first, last in zip(rewards, turn, outcome, strict=True)
    ]


def _per_index(batch: CreditBatch, members: list[int], rewards: Rows, terms: _Terms) -> Rows:
    """The rule `per-index`, for any number of turns.

    **Biased** once the policy decides when to stop: the mean reward of a turn is subtracted from the trajectories that
    reach it and not from those that stop before it, a hidden bonus of minus the mean turn reward per extra turn. That
    later turns are worth reaching is therefore never learned, with or without `to_go`. A trajectory that is the only
    one to reach a turn has nothing to compare with there: its turn reward counts as 0, with a warning.

    `rewards` has one row per member, which may be padded.
    """
    normalised: list[list[float]] = [[] for _ in members]
    for turn in range(max(map(len, rewards))):
        here = [place for place, turns in enumerate(rewards) if turn < len(turns)]
        for place, value in zip(here, terms.normalised([rewards[place][turn] for place in here]), strict=True):
            normalised[place].append(value)
    outcome = terms.normalised([batch.outcome[index] for index in members])
    return [
        [
            terms.turn * (math.fsum(turns[turn:]) if terms.to_go else turns[turn]) + terms.outcome * last
            for turn in range(len(batch.turn_rewards[index]))
        ]
        for index, turns, last in zip(members, normalised, outcome, strict=True)
    ]


def _padded(batch: CreditBatch, members: list[int], rewards: Rows, terms: _Terms) -> Rows:
    """The rule `padded`, for any number of turns: every turn index has G terms.

    With `to_go` and `deviation: none` the gradient is scaled by (G - 1) / G, and its direction is right. A deviation
    per turn index gives turns different weights: biased. Without `to_go` a turn gets no credit for the rewards that
    follow from it: biased too.
    """
    longest = max(map(len, rewards))
    return _per_index(batch, members, [turns + [0.0] * (longest - len(turns)) for turns in rewards], terms)


def _return_to_go(batch: CreditBatch, members: list[int], rewards: Rows, terms: _Terms) -> Rows:
    """The rule `return-to-go`, for any number of turns.

    **Unbiased** with `deviation: none` and `baseline: others`: the returns of the other trajectories do not depend on
    the action that is judged. A trajectory that is the only one to reach a turn keeps its raw return there, with a
    warning: giving it 0 would bias the turn, since the number that reach it depends on the policy.

    `baseline: group` includes the trajectory itself: a turn that n trajectories reach keeps (n - 1) / n of its
    gradient, and n varies with the policy, which distorts the gradient. A deviation divides each turn by a number of
    its own, which distorts it, too.
    """
    returns = [
        [terms.turn * math.fsum(turns[turn:]) + terms.outcome * batch.outcome[index] for turn in range(len(turns))]
        for index, turns in zip(members, rewards, strict=True)
    ]
    advantages: list[list[float]] = [[] for _ in members]
    for turn in range(max(map(len, returns))):
        here = [place for place, turns in enumerate(returns) if turn < len(turns)]
        values = np.array([returns[place][turn] for place in here])
        divisor = scale(values, terms.deviation, terms.epsilon)
        for place, advantage in zip(here, (_differences(values, terms.baseline) / divisor).tolist(), strict=True):
            advantages[place].append(advantage)
    return advantages


def _differences(returns: Numbers, baseline: Baseline) -> Numbers:
    """The returns of the trajectories that reach a turn, minus their baselines."""
    if baseline == "group":
        return normalise(returns, "none", 0.0)
    if len(returns) == 1:
        warnings.warn("a trajectory that is alone at its turn keeps its raw return there", stacklevel=2)
        return returns
    return against_others(returns)


_RULES: Mapping[Rule, Callable[[CreditBatch, list[int], Rows, _Terms], Rows]] = {
    "paper": _paper,
    "per-index": _per_index,
    "padded": _padded,
    "return-to-go": _return_to_go,
}
