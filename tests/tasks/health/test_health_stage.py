"""The stage `health`: monitors, alarms and the next turn limit, iteration after iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from stage_samples import Small, saved, trajectory, turn

from tasks.credit.credit import CreditParameters, credit
from tasks.health.health import HealthParameters, health, read_health
from turnwise.config.monitoring import AlarmRule
from turnwise.config.schema import Credit, CurriculumSection, RewardSection, SelectionSection
from turnwise.data.trajectory import Ending
from turnwise.health.alarms import Change
from turnwise.store import Reference, default_store

REWARDS = {"goal": RewardSection(level="outcome", weight=2.0)}
CHANGE = Change(learning_rate=1e-4, selection=SelectionSection(rule="uncertainty", options={}))


def rollout(log_probability: float = -1.0) -> Reference:
    """Two groups of two: one success, two failures, one cut off after a turn."""

    def one(rewards: dict[str, float] | None = None) -> Any:
        return turn(rewards, log_probability=log_probability)

    return saved(
        [
            trajectory(0, 0, [one({"goal": 1.0})], Ending.SUCCESS),
            trajectory(0, 1, [one(), one()]),
            trajectory(1, 0, [one()]),
            trajectory(1, 1, [one()], Ending.TURN_LIMIT),
        ]
    )


def measured(name: str, **metrics: float) -> Reference:
    """An artifact with these metrics and nothing else."""
    with default_store().write(name) as draft:
        draft.metrics.update(metrics)
    return draft.reference


def booked(
    small: Small,
    iteration: int,
    sampled: Reference,
    previous: Reference | None = None,
    policy: Reference | None = None,
    probe: Reference | None = None,
    **changes: Any,
) -> Reference:
    values: dict[str, Any] = {
        "rewards": REWARDS,
        "start": 1,
        "window": 3,
        "n_gram": 2,
        "rules": {"entropy": AlarmRule(above=1.5)},
        "response": "return",
        "maximum_returns": 1,
        "change": CHANGE,
        "curriculum": CurriculumSection(rule="staged", options={"limits": [1, 2], "lengths": 1}),
        "turns": 2,
        "prompts": None,
        **changes,
    }
    credited = credit.fn(
        CreditParameters(rewards=REWARDS, credit=Credit(estimator="rloo", options={}), reference=None), rollout=sampled
    )
    return health.fn(
        HealthParameters(iteration=iteration, **values),
        rollout=sampled,
        credit=credited,
        tokenizer=small.tokenizer,
        policy=policy,
        probe=probe,
        previous=previous,
    )


def run(small: Small, log_probabilities: Sequence[float], **changes: Any) -> list[Reference]:
    """The records of iterations whose replies had these log-probabilities per token."""
    records: list[Reference] = []
    for number, value in enumerate(log_probabilities, start=1):
        records.append(booked(small, number, rollout(value), records[-1] if records else None, **changes))
    return records


def test_the_monitors_of_an_iteration_are_those_worked_by_hand(small: Small) -> None:
    metrics = default_store().metrics(booked(small, 1, rollout()))
    # Returns 2 and 0 in group 0, nothing in group 1; unbiased deviation sqrt(2) and 0.
    assert metrics["monitor/reward_deviation"] == pytest.approx(math.sqrt(2) / 2)
    assert metrics["monitor/zero_variance_groups"] == 0.5
    assert metrics["monitor/no_signal"] == 0.0
    assert (metrics["monitor/entropy"], metrics["monitor/reply_tokens"]) == (1.0, 3.0)
    assert metrics["monitor/success"] == 0.25
    assert metrics["monitor/truncated_replies"] == 1.0, "no reply ends with the token that ends one"
    assert "monitor/entropy_of_start" not in metrics, "the start is not over"


def test_what_the_update_and_the_probe_measured_is_booked_too(small: Small) -> None:
    policy = measured("policy", gradient_norm=0.5, loss=9.0)
    probe = measured("probe", kl_warm_start=0.25, scored_tokens=90.0)
    metrics = default_store().metrics(booked(small, 1, rollout(), policy=policy, probe=probe))
    assert (metrics["monitor/gradient_norm"], metrics["monitor/kl_warm_start"]) == (0.5, 0.25)
    assert "monitor/loss" not in metrics and "monitor/scored_tokens" not in metrics


def test_a_later_iteration_is_compared_with_the_start(small: Small) -> None:
    first, second = run(small, [-1.0, -1.25])
    assert default_store().metrics(second)["monitor/entropy_of_start"] == pytest.approx(1.25)
    history = read_health(second).monitors
    assert [values["entropy"] for values in history] == [1.0, 1.25]
    assert history[0] == read_health(first).monitors[0]


def test_an_alarm_returns_once_and_then_stops(small: Small) -> None:
    records = run(small, [-1.0, -2.0, -1.0, -2.0])
    alarms = [read_health(record).alarm for record in records]
    assert [alarm.response for alarm in alarms] == ["none", "return", "none", "stop"]
    assert [alarm.healthy for alarm in alarms] == [1, 1, 3, 3]
    assert alarms[1].change == CHANGE and alarms[3].change is None
    assert alarms[1].raised["entropy"].startswith("entropy must be at most 1.5, and is 2")
    metrics = default_store().metrics(records[1])
    assert (metrics["alarm/entropy"], metrics["alarm/raised"], metrics["alarm/returns"]) == (1.0, 1.0, 1.0)


def test_an_alarm_that_stays_on_is_raised_once(small: Small) -> None:
    alarms = [read_health(record).alarm for record in run(small, [-2.0, -2.0, -1.0, -2.0], response="log")]
    assert [alarm.response for alarm in alarms] == ["log", "none", "none", "log"]
    assert [alarm.on for alarm in alarms] == [("entropy",), ("entropy",), (), ("entropy",)]


def test_the_turn_limit_follows_the_curriculum(small: Small) -> None:
    first, second = run(small, [-1.0, -1.0])
    limits = [
        {name: value for name, value in default_store().metrics(record).items() if name.startswith("horizon/")}
        for record in (first, second)
    ]
    # One of four was cut off after the one turn that the first limit allows; none after two.
    assert limits[0] == {"horizon/limit": 1.0, "horizon/next_limit": 2.0, "horizon/share_at_limit": 0.25}
    assert limits[1] == {"horizon/limit": 2.0, "horizon/next_limit": 2.0, "horizon/share_at_limit": 0.0}
    assert read_health(first).horizon.limit == 2


def test_with_a_lag_the_limit_is_set_for_the_iteration_after_the_next(small: Small) -> None:
    staged = CurriculumSection(rule="staged", options={"limits": [1, 2], "lengths": 2})
    records = [booked(small, 1, rollout(), curriculum=staged, lag=1, limit=1)]
    records.append(booked(small, 2, rollout(), records[0], curriculum=staged, lag=1, limit=1))
    # Iterations 1 and 2 have the first limit; that of 3 is set by iteration 1, while 2 is being sampled.
    assert [read_health(record).horizon.limit for record in records] == [2, 2]
    assert [default_store().metrics(record)["horizon/limit"] for record in records] == [1.0, 1.0]
    assert default_store().metrics(records[1])["horizon/share_at_limit"] == 0.25


def test_episodes_that_were_sampled_before_the_limit_grew_do_not_count_at_the_new_one(small: Small) -> None:
    adaptive = {"first": 1, "window": 2, "tolerance": 0.9, "standard_errors": 0.0, "share": 0.01}
    section = CurriculumSection(rule="adaptive", options=adaptive)
    records: list[Reference] = []
    for iteration, limit in enumerate([1, 1, 1, 1, 1, 2], start=1):
        before = records[-1] if records else None
        records.append(booked(small, iteration, rollout(), before, curriculum=section, lag=1, limit=limit))
    states = [read_health(record).horizon for record in records]
    assert [state.limit for state in states] == [1, 1, 1, 2, 2, 2]
    assert [len(state.batches) for state in states] == [1, 2, 3, 0, 0, 1]


def test_of_a_branching_rollout_only_episodes_from_the_first_turn_count_for_the_limit(small: Small) -> None:
    # With one prompt, group 1 branches from the second turn; the one that was cut off is in it.
    metrics = default_store().metrics(booked(small, 1, rollout(), prompts=1))
    assert metrics["horizon/share_at_limit"] == 0.0
    assert metrics["monitor/success"] == 0.25


def test_the_same_iteration_gives_the_same_record(small: Small) -> None:
    assert run(small, [-1.0, -2.0]) == run(small, [-1.0, -2.0])
