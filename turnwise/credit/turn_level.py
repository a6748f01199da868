"""MT-GRPO: credit for each turn.

    paper (two turns):   A_1 = norm(turn) + c * norm(outcome),   A_2 = norm(outcome)

    return-to-go (K turns):
        R_(i,t) = sum over s >= t of turn reward_(i,s) + c * outcome_i
        A_(i,t) = R_(i,t) - mean of R_(j,t) over the *other* trajectories j of the group that reach turn t

Paper: MT-GRPO (arXiv 2505.11821), equation of section 4.2 for two turns. `return-to-go` is ours: normalising each turn
index among the trajectories that reach it is biased once the policy decides when to stop, and a group mean that
includes the trajectory itself is distorted since the number of trajectories at a turn varies; leaving oneself out is
unbiased for any number of turns. Differs from the released code: the coefficient c stands on the outcome, as in the
paper.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, get_args

from turnwise.credit.batch import CreditBatch
from turnwise.credit.normalisation import Deviation, normalise, require_deviation, scale
from turnwise.errors import CreditError

Rule = Literal["paper", "return-to-go"]


def mt_grpo(
    batch: CreditBatch,
    *,
    rule: Rule = "paper",
    outcome_coefficient: float = 1.0,
    deviation: Deviation | None = None,
    epsilon: float = 1e-4,
) -> list[list[float]]:
    """One advantage per turn.

    The rule is chosen by configuration, never by the lengths in the batch. `deviation` is `unbiased` for `paper` and
    `none` for `return-to-go` unless it is given. Raises CreditError for `paper` with a trajectory of more than two
    turns.
    """
    if rule not in get_args(Rule):
        raise CreditError(f"rule must be one of {', '.join(get_args(Rule))}; found {rule!r}")
    chosen: Deviation = deviation or ("unbiased" if rule == "paper" else "none")
    require_deviation(chosen, epsilon)
    advantages: list[list[float]] = [[] for _ in range(len(batch))]
    compute = _paper if rule == "paper" else _return_to_go
    for members in batch.members.values():
        for index, turns in zip(members, compute(batch, members, outcome_coefficient, chosen, epsilon), strict=True):
            advantages[index] = turns
    return advantages


def _paper(
    batch: CreditBatch, members: list[int], coefficient: float, deviation: Deviation, epsilon: float
) -> list[list[float]]:
    """Two turns. A trajectory of one turn (a direct answer) gets A_1: its only turn is the one that chose not to call
    the tool, and its turn reward, 0, is compared with those who did.
    """
    longest = max(batch.turns[index] for index in members)
    if longest > 2:
        raise CreditError(
            f"mt-grpo with rule 'paper' is defined on at most two turns; found a trajectory of {longest}; "
            "set credit.options.rule to 'return-to-go', or the world's turn limit to 2"
        )
    turn = normalise([math.fsum(batch.turn_rewards[index]) for index in members], deviation, epsilon)
    outcome = normalise([batch.outcome[index] for index in members], deviation, epsilon)
    return [
        [first + coefficient * last, last][: batch.turns[index]]
        for index, first, last in zip(members, turn, outcome, strict=True)
    ]


def _return_to_go(
    batch: CreditBatch, members: list[int], coefficient: float, deviation: Deviation, epsilon: float
) -> list[list[float]]:
    """Any number of turns. A trajectory that is alone at its turn keeps its raw return there: giving it 0 biases the
    turn. The gradient is unbiased with `deviation="none"`; a deviation rescales each turn by its own spread.
    """
    returns = {index: _returns(batch, index, coefficient) for index in members}
    advantages: dict[int, list[float]] = {index: [] for index in members}
    for turn in range(max(batch.turns[index] for index in members)):
        here = [index for index in members if turn < batch.turns[index]]
        values = [returns[index][turn] for index in here]
        if len(here) == 1:
            warnings.warn("a trajectory that is alone at its turn keeps its raw return there", stacklevel=3)
        total, divisor = math.fsum(values), scale(values, deviation, epsilon)
        for index, value in zip(here, values, strict=True):
            others = (total - value) / (len(here) - 1) if len(here) > 1 else 0.0
            advantages[index].append((value - others) / divisor)
    return [advantages[index] for index in members]


def _returns(batch: CreditBatch, index: int, coefficient: float) -> list[float]:
    """The return-to-go from each turn of one trajectory."""
    rewards = batch.turn_rewards[index]
    return [math.fsum(rewards[turn:]) + coefficient * batch.outcome[index] for turn in range(len(rewards))]
