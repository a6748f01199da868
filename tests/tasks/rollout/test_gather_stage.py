"""The stage `gather`: several rounds of one iteration become one rollout."""

from __future__ import annotations

import pytest
from stage_samples import saved, trajectory, turn

from tasks.rollout.rollout import GatherParameters, gather
from turnwise.data.trajectory import Ending
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("turnwise_home")

FIRST = [
    trajectory(0, 0, [turn({"goal": 1.0})], Ending.SUCCESS),
    trajectory(0, 1, [turn(), turn()]),
    trajectory(2, 0, [turn(tokens=5)]),
]
SECOND = [trajectory(0, 0, [turn({"goal": 1.0})], Ending.SUCCESS, "lake/7"), trajectory(1, 0, [turn()], task="lake/8")]


def gathered(*rounds: Reference) -> Reference:
    return gather.fn(GatherParameters(), rollouts=list(rounds))


def test_groups_are_numbered_on_so_that_none_of_two_rounds_are_one() -> None:
    found = read_trajectories(default_store().folder(gathered(saved(FIRST), saved(SECOND))))
    # The first round has the groups 0 and 2 (that of 1 was lost): the second begins at 3.
    assert [(each.group, each.replica, each.task.id) for each in found] == [
        (0, 0, "lake/0"),
        (0, 1, "lake/0"),
        (2, 0, "lake/2"),
        (3, 0, "lake/7"),
        (4, 0, "lake/8"),
    ]
    assert [each.turns for each in found] == [each.turns for each in (*FIRST, *SECOND)]


def test_means_are_over_all_episodes_and_losses_are_added() -> None:
    reference = gathered(
        saved(FIRST, **{"lost_episodes": 2.0, "reward/invalid_turn": 0.0}), saved(SECOND, **{"lost_episodes": 1.0})
    )
    metrics = default_store().metrics(reference)
    # 2 of 5 succeed; 1, 2, 1, 1, 1 turns of 3, 6, 5, 3, 3 tokens; 3 of 8 episodes were lost.
    assert metrics["success"] == pytest.approx(0.4)
    assert metrics["turns"] == pytest.approx(1.2)
    assert metrics["reply_tokens"] == pytest.approx(4.0)
    assert metrics["ending/world_lost"] == pytest.approx(3 / 8)
    assert (metrics["lost_episodes"], metrics["rounds"]) == (3.0, 2.0)
    assert metrics["reward/invalid_turn"] == 0.0, "recorded in one round, so it has a mean over both"


def test_measurements_of_the_rounds_are_added_but_not_how_long_their_stages_took() -> None:
    first, second = saved(FIRST), saved(SECOND)
    default_store().record_clock(first, {"seconds": 9.0, "engine_seconds": 1.5})
    default_store().record_clock(second, {"seconds": 8.0, "engine_seconds": 2.0, "sampled_tokens": 30.0})
    clock = default_store().clock(gathered(first, second))
    assert 0.0 < clock.pop("seconds") < 8.0 and clock == {"engine_seconds": 3.5, "sampled_tokens": 30.0}


def test_an_empty_round_adds_nothing() -> None:
    found = read_trajectories(default_store().folder(gathered(saved([]), saved(SECOND))))
    assert [each.group for each in found] == [0, 1]
