"""The stage `rollout`: groups of episodes of the tasks that are drawn for an iteration, by a real tiny policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import Small, rolled_out

import turnwise.agent.sampling
from tasks.rollout.rollout import drawn_tasks
from turnwise.data.metrics import episode_means
from turnwise.data.task_sets import tasks_of
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.policy.engines.embedded import EmbeddedEngine
from turnwise.policy.engines.processes import EngineSpread
from turnwise.store import Reference, default_store
from turnwise.world import Task

TASKS = [Task("lake", f"lake/{number}", "train", number) for number in range(6)]


def episodes(reference: Reference) -> list[Trajectory]:
    return read_trajectories(default_store().folder(reference))


def test_every_drawn_task_is_played_by_a_group(small: Small) -> None:
    played = episodes(rolled_out(small))
    assert [(each.group, each.replica) for each in played] == [
        (group, replica) for group in (0, 1) for replica in range(3)
    ]
    drawn = drawn_tasks(tasks_of(small.task_sets["train"], "train"), 2, seed=5, iteration=1)
    assert [each.task for each in played] == [task for task in drawn for _ in range(3)]


def test_what_was_sampled_is_kept_with_its_log_probabilities(small: Small) -> None:
    turns = [turn for each in episodes(rolled_out(small)) for turn in each.turns]
    for turn in turns:
        assert 1 <= len(turn.reply_tokens) == len(turn.log_probabilities) <= 24
        assert all(value <= 0.0 for value in turn.log_probabilities)
    # A policy that has learned nothing gives each of about 300 tokens about the same chance.
    mean = sum(value for turn in turns for value in turn.log_probabilities) / sum(
        len(turn.reply_tokens) for turn in turns
    )
    assert -7.0 < mean < -4.0


def test_the_metrics_are_means_over_the_episodes_and_the_clock_has_the_sampled_tokens(small: Small) -> None:
    reference = rolled_out(small)
    played, metrics = episodes(reference), default_store().metrics(reference)
    assert metrics["lost_episodes"] == 0.0
    for name, value in episode_means(played).items():
        assert metrics[name] == value
    assert metrics["reward/goal"] == 0.0 or metrics["success"] > 0.0
    sampled = sum(len(turn.reply_tokens) for each in played for turn in each.turns)
    assert default_store().clock(reference)["sampled_tokens"] == sampled == metrics["reply_tokens"] * 6


def test_a_reward_that_is_asked_for_is_recorded_and_changes_nothing_else(small: Small) -> None:
    plain, asked = rolled_out(small), rolled_out(small, further_rewards=("unfinished",))
    of_plain, of_asked = default_store().metrics(plain), default_store().metrics(asked)
    assert "reward/unfinished" not in of_plain
    finished = [each.ending in (Ending.SUCCESS, Ending.FAILURE) for each in episodes(plain)]
    assert of_asked == {**of_plain, "reward/unfinished": finished.count(False) / len(finished)}


def test_the_same_call_gives_the_same_episodes_and_seed_iteration_and_round_others(small: Small) -> None:
    first = rolled_out(small)
    assert rolled_out(small) == first
    assert len({first, *(rolled_out(small, **change) for change in ({"seed": 6}, {"iteration": 2}, {"round": 1}))}) == 4


def test_a_horizon_cuts_episodes_off(small: Small) -> None:
    short = episodes(rolled_out(small, horizon=1))
    assert all(len(each.turns) == 1 for each in short)
    assert {each.ending for each in short} <= {Ending.TURN_LIMIT, Ending.SUCCESS, Ending.FAILURE, Ending.TOKEN_BUDGET}
    assert any(len(each.turns) == 2 for each in episodes(rolled_out(small)))


@given(
    tasks=st.integers(1, 6),
    count=st.integers(1, 4),
    seed=st.integers(0, 99),
    iteration=st.integers(1, 50),
    rounds=st.integers(1, 4),
)
def test_no_task_is_drawn_twice_in_an_iteration_before_every_task_was_drawn(
    tasks: int, count: int, seed: int, iteration: int, rounds: int
) -> None:
    drawn = [task for round in range(rounds) for task in drawn_tasks(TASKS[:tasks], count, seed, iteration, round)]
    counts = Counter(task.id for task in drawn)
    assert len(drawn) == count * rounds
    assert max(counts.values()) - min(counts.get(task.id, 0) for task in TASKS[:tasks]) <= 1


def test_iterations_draw_in_different_orders() -> None:
    orders = {tuple(task.id for task in drawn_tasks(TASKS, 6, 0, iteration)) for iteration in range(1, 9)}
    assert len(orders) > 6
    with pytest.raises(ZeroDivisionError):
        drawn_tasks([], 1, 0, 1)


class Shared(EmbeddedEngine):
    """One engine, which records how it was to share the episodes out."""

    groups: ClassVar[list[list[int]]] = []

    def share_out(self, groups: Sequence[int]) -> None:
        self.groups.append(list(groups))


@pytest.mark.parametrize("scheme", ["independent", "branching"])
def test_several_engines_are_told_the_groups(small: Small, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    asked: list[EngineSpread] = []

    def resident(name: str, *, spread: EngineSpread, precision: str, sleep_level: int, **options: Any) -> Shared:
        asked.append(spread)
        return Shared(**options)

    monkeypatch.setattr(turnwise.agent.sampling, "resident_engine", resident)
    monkeypatch.setattr(Shared, "groups", [])
    compute = small.experiment.compute.model_copy(update={"engines": 2})
    rolled_out(small, compute=compute, scheme=scheme)
    assert set(asked) == {EngineSpread(engines=2)}
    if scheme == "independent":
        assert Shared.groups == [[0, 0, 0, 1, 1, 1]]
    else:
        trunks, branches = Shared.groups
        assert trunks == [0, 1] and branches[:4] == [0, 0, 1, 1] and branches[4:] == sorted(branches[4:])
