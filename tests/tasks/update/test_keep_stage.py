"""The stage `keep`: for each task the best episode that reaches the threshold is imitated."""

from __future__ import annotations

import pytest
from stage_samples import rows, saved, trajectory, turn

from tasks.update.rejection_sampling import KeepParameters, keep
from turnwise.config.schema import RewardSection, WorldSection
from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import CREDIT_FILE
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("turnwise_home")

EPISODES = [
    trajectory(0, 0, [turn()]),
    trajectory(0, 1, [turn(), turn({"goal": 1.0})], Ending.SUCCESS),
    trajectory(0, 2, [turn({"goal": 1.0})], Ending.SUCCESS),
    trajectory(1, 0, [turn()], Ending.TURN_LIMIT),
    trajectory(2, 0, [turn({"goal": 1.0})], Ending.SUCCESS),
    trajectory(2, 1, [], Ending.TOKEN_BUDGET),
]


def kept(threshold: float = 1.0) -> Reference:
    parameters = KeepParameters(
        world=WorldSection(name="frozen_lake", parameters={}),
        rewards={"goal": RewardSection(level="outcome", weight=2.0)},
        threshold=threshold,
    )
    return keep.fn(parameters, rollout=saved(EPISODES))


def test_the_first_success_of_each_task_has_credit_1_on_every_turn_and_all_others_0() -> None:
    found = rows(kept(), CREDIT_FILE)
    # Of two equally good ones the first. Task 1 was never solved; an episode without a reply has no row.
    assert [(row["trajectory"], row["advantage"]) for row in found] == [
        (0, 0.0),
        (1, 1.0),
        (1, 1.0),
        (2, 0.0),
        (3, 0.0),
        (4, 1.0),
    ]
    assert [row["outcome"] for row in found] == [0.0, 2.0, 2.0, 2.0, 0.0, 2.0], "weighted as in training"


def test_the_kept_ones_are_counted() -> None:
    metrics = default_store().metrics(kept())
    assert (metrics["kept"], metrics["left_out"], metrics["groups"]) == (2, 1, 3)


def test_a_threshold_of_0_keeps_one_episode_of_every_task_and_one_above_1_none() -> None:
    assert default_store().metrics(kept(0.0))["kept"] == 3
    assert default_store().metrics(kept(1.1))["kept"] == 0
    assert {row["advantage"] for row in rows(kept(1.1), CREDIT_FILE)} == {0.0}
