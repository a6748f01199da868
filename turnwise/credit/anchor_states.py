"""GiGPO: the episode compared within its group, plus each turn compared with the visits to the same state.

    R_(i,t)  = sum over s >= t of gamma^(s-t) r_(i,s)
    A_(i,t)  = norm(R_i)_i + omega * norm(R at the visits to the state before turn t)_(i,t)

The episode's mean and deviation are over the trajectories of a group, each counted once; those of a step are over the
visits to one anchor state by the group's trajectories, where each visit counts. A state that was visited once, or that
the world does not report, gives 0.

Paper: GiGPO (Feng et al., arXiv 2505.10978, equations 3 to 8); gamma 0.95, omega 1 and the deviation as published (its
authors also use `deviation: none`). Differs from the paper: states are equal when their texts are, with no similarity
threshold; the outcome is paid at the last turn; a group of one gets 0 for its episode term, and a warning. Differs from
the released code, which counts an episode's return once for each of its steps in the episode's mean and deviation: long
episodes weigh more there; the paper's equation and this counts each trajectory once. epsilon is the release's, 1e-6.

Bias: both means include the trajectory or visit that is judged, and the number of visits to a state varies with the
policy, so that a step term is distorted as `return-to-go` with `baseline: group` is; a trajectory that visits a state
twice is compared with its own later return. gamma below 1 makes later rewards worth less in the step term alone.
"""

from __future__ import annotations

from turnwise.config.quantities import NotNegative, Number, Share
from turnwise.credit.batch import CreditBatch, Rewards
from turnwise.credit.group_relative import Deviation, normalise
from turnwise.credit.placement import Placement, on_turns
from turnwise.credit.reinforce import discounted_returns
from turnwise.data.arrays import Ragged
from turnwise.errors import CreditError


def gigpo(
    batch: CreditBatch,
    *,
    rewards: Rewards = "merged",
    omega: Number = 1.0,
    gamma: Share = 0.95,
    deviation: Deviation = "unbiased",
    epsilon: NotNegative = 1e-6,
) -> Ragged:
    """One advantage per turn. `rewards` selects the rewards of both terms; token rewards are added to their turn's.

    Needs `anchors`. Raises CreditError when no turn has one.
    """
    episodes = batch.in_groups(batch.totals(rewards), lambda values: normalise(values, deviation, epsilon))
    advantages = batch.on_every_turn(episodes)
    placement: Placement = "turn" if rewards == "merged" else "outcome"
    returns = discounted_returns(on_turns(batch, placement), gamma)
    for visits in _visits(batch):
        advantages.values[visits] += omega * normalise(returns.values[visits], deviation, epsilon)
    return advantages


def _visits(batch: CreditBatch) -> list[list[int]]:
    """The visits to each state that the trajectories of one group visited at least twice; one list per state.

    A visit is a turn's place among all turns of the batch.
    """
    if batch.anchors is None or (len(batch) and all(anchor is None for row in batch.anchors for anchor in row)):
        raise CreditError("anchors must tell the state before each turn; found none: the world does not tell them")
    visits: dict[tuple[int, str], list[int]] = {}
    states = [(group, anchor) for group, row in zip(batch.group, batch.anchors, strict=True) for anchor in row]
    for turn, (group, anchor) in enumerate(states):
        if anchor is not None:
            visits.setdefault((group, anchor), []).append(turn)
    return [found for found in visits.values() if len(found) > 1]
