"""The credit study of a batch whose states were replayed: from episodes and continuations to `examine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.checking.credit_bias import Rule
from turnwise.config.schema import RewardSection
from turnwise.credit import CreditBatch
from turnwise.credit.batch import rewards_of_groups, weighted_returns
from turnwise.credit_study.study import Study, examine
from turnwise.credit_study.truth import Decisions, Truth, replayed_truth
from turnwise.data.arrays import Ragged, TrajectoryArrays
from turnwise.data.scores import Scores
from turnwise.errors import WorldLost

FEWEST_REPLAYS = 2
"""Fewest continuations per state. From a single one the uncertainty of the state's value cannot be estimated."""

Rewards = Mapping[str, RewardSection]


def study_replays(
    trajectories: TrajectoryArrays,
    continuations: TrajectoryArrays,
    vectors: NDArray[np.float32],
    rewards: Rewards,
    *,
    values: Scores | None,
    rescored: Mapping[str, Ragged],
    greedy: TrajectoryArrays | None,
    turn_limit: int,
    seed: int,
    further: Sequence[Rule],
) -> tuple[Study, int]:
    """Compare every estimator with the true advantages: the study, and how many tasks are left out of it.

    `continuations` are grouped by the number of the state that they go on from, `vectors` [turns, dimensions] are those
    of all turns. `values` are a critic's of the episodes, `rescored` by name what else rules need of the policy,
    `greedy` one greedy episode of each task. Groups with a state that could not be replayed twice are left out.

    Raises:
        WorldLost: no group is left.
    """
    returns: dict[int, list[float]] = {}
    for state, earned in zip(continuations.group.tolist(), weighted_returns(continuations, rewards), strict=True):
        returns.setdefault(state, []).append(earned)
    group = trajectories.group.tolist()
    # The numbers of each trajectory's turns among all turns: of its states, and of its score vectors.
    rows = trajectories.turn_rows(np.arange(len(trajectories.trained))).tolist()
    measured = {index: [returns.get(row, []) for row in of_turns] for index, of_turns in enumerate(rows) if of_turns}
    dropped = {
        group[index]
        for index, of_states in measured.items()
        if any(len(of_state) < FEWEST_REPLAYS for of_state in of_states)
    }
    kept = [index for index in measured if group[index] not in dropped]
    if not kept:
        raise WorldLost(
            "the study must be able to replay at least one group's states; the world lost all of them", "TW-world-lost"
        )
    chosen = trajectories.select(kept)
    baselines = {} if greedy is None else rewards_of_groups(greedy, rewards)
    played_greedily = baselines.keys() >= {*chosen.group.tolist()}
    batch = CreditBatch.of(
        chosen,
        rewards,
        values=None if values is None else values.per_token.select(kept),
        bootstrap=None if values is None else values.at_end[kept],
        greedy_rewards=Ragged.of([baselines[task] for task in chosen.group.tolist()]) if played_greedily else None,
        rescored={name: scores.select(kept) for name, scores in rescored.items()},
    )
    study = examine(
        batch,
        truth_of(chosen, [measured[index] for index in kept], rewards),
        vectors[[row for index in kept for row in rows[index]]],
        Decisions.of(chosen),
        turn_limit=turn_limit,
        seed=seed,
        further=further,
    )
    return study, len(dropped)


def truth_of(trajectories: TrajectoryArrays, continued: Sequence[Sequence[Sequence[float]]], rewards: Rewards) -> Truth:
    """The true advantages. `continued` holds the returns of continuations, by trajectory and state."""
    return replayed_truth(weighted_returns(trajectories, rewards), continued)
