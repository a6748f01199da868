"""Monitors of one's own, and alarms that watch them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwise.checking.added_rewards import CheckedReward
from turnwise.config.monitoring import AlarmRule
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError, ContractError
from turnwise.experiment import load
from turnwise.health.added_monitors import measure_added
from turnwise.health.alarms import AlarmState, Change, judge

HERE = __name__
PARAMETERS = Path(__file__).parents[2] / "params.yaml"
EPISODES = CheckedReward("", {}).episodes


def most_turns(trajectories: Sequence[Trajectory], rewards: Sequence[float]) -> float | None:
    return max(len(each.turns) for each in trajectories) + rewards[0]


def unmeasured(trajectories: Sequence[Trajectory], rewards: Sequence[float]) -> float | None:
    return None


def infinite(trajectories: Sequence[Trajectory], rewards: Sequence[float]) -> float | None:
    return float("inf")


nonsense = 7


def test_a_number_is_recorded_under_its_name_and_none_is_not() -> None:
    added = {"longest": f"{HERE}:most_turns", "absent": f"{HERE}:unmeasured"}
    assert measure_added(added, EPISODES, [0.5]) == {"longest": max(len(each.turns) for each in EPISODES) + 0.5}
    with pytest.raises(ContractError, match=r"None.*TW-not-finite"):
        measure_added({"longest": f"{HERE}:infinite"}, EPISODES, [0.5])


def test_an_alarm_may_watch_it() -> None:
    watched = {
        "monitors": {"added": {"longest": f"{HERE}:most_turns"}},
        "alarms": {"rules": {"longest": {"above": 40.0}}},
    }
    experiment = load(PARAMETERS, [watched])
    assert experiment.monitors.added == {"longest": f"{HERE}:most_turns"}
    rules = {"longest": AlarmRule(above=40.0, patience=1)}
    change = Change(learning_rate=0.1, selection=experiment.selection)
    record = judge(AlarmState(), 1, {"longest": 41.0}, rules, response="log", maximum_returns=0, change=change)
    assert record.raised == {"longest": "longest must be at most 40, and is 41"}
    with pytest.raises(ConfigurationError, match=r"'longst'.*TW-unknown-monitor"):
        load(PARAMETERS, [watched, {"alarms": {"rules": {"longst": {"above": 1.0}}}}])


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("entropy", f"{HERE}:most_turns", "monitors.added.entropy must have a name of its own"),
        ("own", f"{HERE}:nonsense", "monitors.added.own: a monitor"),
        ("own", "no_such_module:monitor", "monitors.added.own: a monitor must name a monitor in a module"),
    ],
)
def test_what_is_no_monitor_is_refused_before_compute(name: str, function: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        load(PARAMETERS, [{"monitors": {"added": {name: function}}}])
    assert said in str(found.value)
