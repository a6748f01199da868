"""GiGPO and HGPO: each turn is compared with the visits of its group to the same state, or to the same last states.

    R_(i,t)  = sum over s >= t of gamma^(s-t) r_(i,s)

    gigpo   A_(i,t) = norm(R_i)_i + omega * norm(R at the visits to the state before turn t)_(i,t)

    hgpo    A_k     = norm(R at the visits to the same last k states before turn t)_(i,t)   for k = 1 .. K + 1
            A_(i,t) = sum of (k + 1)^alpha A_k / sum of (k + 1)^alpha   over A_k that are not 0

The episode's mean and deviation are over the trajectories of a group, each counted once; those of a step are over the
visits to one anchor state by the group's trajectories, where each visit counts. A state that was visited once, or that
the world does not report, gives 0.

With `similarity` states of `gigpo` are equal whose texts are alike: difflib's ratio, 2 x common characters / all, is at
least that. The texts are taken in alphabetical order; each joins the first cluster whose first text is alike, so that
the order of trajectories is of no account, where the release takes the order of the batch. Its threshold is 0.95.

Papers: GiGPO (Feng et al., arXiv 2505.10978, equations 3 to 8); gamma 0.95, omega 1 and the deviation as published (its
authors also use `deviation: none`). HGPO, hierarchy of groups (He et al., arXiv 2602.22817): a turn with the same past
is the better comparison and the rarer one; K is `history`, alpha 1 and the population deviation as in the release
(verl-agent's `recipe/hgpo`). `episode: true` adds GiGPO's episode term as k = 0, the release's `base_group`. There, K
is the number of states that its prompt remembers; here a policy sees what `agent.context` says, and K is free.

Differs from the papers: states are equal when their texts are, unless `similarity` is set; the outcome is paid at the
last turn; a group of one gets 0 for its episode term, and a warning. Differs from GiGPO's released code, which counts
an episode's return once for each of its steps in the episode's mean and deviation: long episodes weigh more there; the
paper's equation and this counts each trajectory once. epsilon is the releases', 1e-6; HGPO's adds it to the sum of the
weights, too, which scales by 1 - 3e-7 and less.

Bias: the means include the trajectory or visit that is judged, and the number of visits to a state varies with the
policy, so that a step term is distorted as `return-to-go` with `baseline: group` is; a trajectory that visits a state
twice is compared with its own later return. Equal last states remove what `gigpo` mixes where the state before a turn
does not say what matters of the past; an average over those A_k that are not 0 depends on the returns, a further
distortion. gamma below 1 makes later rewards worth less in the step term alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from difflib import SequenceMatcher
from typing import Annotated

import numpy as np
from pydantic import Field

from turnwise.config.quantities import NotNegative, Number, Share, Whole
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import Deviation, normalise
from turnwise.credit.placement import Placement, on_turns
from turnwise.credit.reinforce import discounted_returns
from turnwise.data.arrays import Numbers, Ragged
from turnwise.errors import CreditError

Likeness = Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)]


def gigpo(
    batch: CreditBatch,
    *,
    rewards: Rewards = "merged",
    omega: Number = 1.0,
    gamma: Share = 0.95,
    deviation: Deviation = "unbiased",
    epsilon: NotNegative = 1e-6,
    similarity: Likeness | None = None,
) -> Ragged:
    """One advantage per turn. `rewards` selects the rewards of both terms; token rewards are added to their turn's.

    Needs `anchors`. Raises CreditError when no turn has one.
    """
    advantages = _episode_term(batch, rewards, deviation, epsilon)
    returns = _returns(batch, rewards, gamma)
    for visits in _visits(batch, 1, similarity):
        advantages.values[visits] += omega * normalise(returns[visits], deviation, epsilon)
    return advantages


def hgpo(
    batch: CreditBatch,
    *,
    rewards: Rewards = "merged",
    history: Whole = 2,
    alpha: NotNegative = 1.0,
    gamma: Share = 0.95,
    episode: bool = False,
    deviation: Deviation = "population",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. `history` is K: states before the present one that may have to be equal, too.

    Rewards as in `gigpo`. Needs `anchors`. Raises CreditError when no turn has one.
    """
    returns = _returns(batch, rewards, gamma)
    advantages, weights = np.zeros(len(returns)), np.zeros(len(returns))

    def add(turns: list[int] | slice, term: Numbers, length: int) -> None:
        weight = (length + 1.0) ** alpha * (term != 0)
        advantages[turns] += weight * term
        weights[turns] += weight

    if episode:
        add(slice(None), _episode_term(batch, rewards, deviation, epsilon).values, 0)
    for length in range(1, history + 2):
        for visits in _visits(batch, length):
            add(visits, normalise(returns[visits], deviation, epsilon), length)
    return Ragged(advantages / np.where(weights > 0, weights, 1.0), batch.turn_rewards.offsets)


def _episode_term(batch: CreditBatch, rewards: Rewards, deviation: Deviation, epsilon: float) -> Ragged:
    """The reward of each trajectory within its group, at each of its turns."""
    terms = batch.in_groups(batch.totals(rewards), lambda values: normalise(values, deviation, epsilon))
    return batch.on_every_turn(terms)


def _returns(batch: CreditBatch, rewards: Rewards, gamma: float) -> Numbers:
    """The discounted return from each turn of the batch, [turns]."""
    placement: Placement = "turn" if rewards == "merged" else "outcome"
    returns: Numbers = discounted_returns(on_turns(batch, placement), gamma).values
    return returns


def _visits(batch: CreditBatch, length: int, similarity: float | None = None) -> list[list[int]]:
    """The visits to each sequence of states that the trajectories of one group came by at least twice.

    A visit is a turn's place among all turns of the batch; the sequence is of the `length` states up to the one before
    that turn, all of which the world reports. Raises CreditError when it reports none of the batch.
    """
    if batch.anchors is None or (len(batch) and all(anchor is None for row in batch.anchors for anchor in row)):
        raise CreditError(
            "anchors must tell the state before each turn; found none: the world does not tell them",
            "TW-rule-lacks-input",
        )
    visits: dict[Hashable, list[int]] = {}
    for members in batch.members.values():
        alike = _cluster_states(
            [anchor for index in members for anchor in batch.anchors[index] if anchor is not None], similarity
        )
        for index in members:
            states = [None if anchor is None else alike.get(anchor, anchor) for anchor in batch.anchors[index]]
            for turn in range(length - 1, len(states)):
                latest = tuple(states[turn - length + 1 : turn + 1])
                if None not in latest:
                    visits.setdefault((members[0], latest), []).append(int(batch.turn_rewards.offsets[index]) + turn)
    return [places for places in visits.values() if len(places) > 1]


def _cluster_states(states: list[str], similarity: float | None) -> dict[str, str]:
    """For each state, the one that stands for its cluster; empty where only equal texts are equal states."""
    if similarity is None:
        return {}
    cluster: dict[str, str] = {}
    first: list[str] = []
    for state in sorted(set(states)):
        like = (other for other in first if SequenceMatcher(None, other, state, autojunk=False).ratio() >= similarity)
        cluster[state] = next(like, state)
        if cluster[state] == state:
            first.append(state)
    return cluster
