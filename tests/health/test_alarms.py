"""Alarms and guards: what they count, what they remember, and what makes no sense is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.config.monitoring import AlarmRule
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.health.alarms import MEANINGS, AlarmState, in_words, out_of_bounds
from turnwise.health.guards import COUNTED, GUARDS, in_a_row, message
from turnwise.health.monitors import MONITORS, Values

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"
RULES = {"entropy": AlarmRule(below=1.0, patience=2), "reply_tokens": AlarmRule(below=4.0, above=9.0)}


def after(*measurements: dict[str, float], state: AlarmState | None = None, begin: int = 1) -> AlarmState:
    state = state or AlarmState()
    for iteration, values in enumerate(measurements, begin):
        state = state.after(iteration, values, RULES)
    return state


@pytest.mark.parametrize(("success", "counted"), [(1.0, 0), (0.99, 1)])
def test_where_everything_is_solved_equal_rewards_are_no_alarm(success: float, counted: int) -> None:
    rules = {"reward_deviation_of_start": AlarmRule(below=0.1), "entropy_of_start": AlarmRule(below=0.1)}
    values = {"success": success, "reward_deviation_of_start": 0.0, "entropy_of_start": 0.05}
    state = AlarmState().after(1, values, rules)
    assert state.counts.get("reward_deviation_of_start", 0) == counted
    assert state.counts["entropy_of_start"] == 1, "a policy that knows one reply for each task may still be lost"


def test_an_alarm_is_raised_at_its_patience_once_and_stays_on_until_a_value_is_within_bounds() -> None:
    low, fine = {"entropy": 0.5, "reply_tokens": 5.0}, {"entropy": 1.0, "reply_tokens": 5.0}
    states = [AlarmState()]
    for iteration, values in enumerate((fine, low, low, low, fine, low), 1):
        states.append(states[-1].after(iteration, values, RULES))
    assert [state.on(RULES) for state in states] == [(), (), (), ("entropy",), ("entropy",), (), ()]
    pairs = zip(states[1:], states, strict=False)
    assert [now.raised_since(before, RULES) for now, before in pairs] == [(), (), ("entropy",), (), (), ()]
    assert [state.healthy for state in states] == [0, 1, 1, 1, 1, 5, 5]


def test_what_was_not_measured_leaves_its_count_as_it_was() -> None:
    state = after({"entropy": 0.5}, {}, {"entropy": 0.2})
    assert state.on(RULES) == ("entropy",)
    assert state.healthy == 0


def test_after_a_return_nothing_counts_and_the_healthy_iteration_is_remembered() -> None:
    state = after({"entropy": 2.0}, {"entropy": 0.1}, {"entropy": 0.1}).returned()
    assert state == AlarmState({}, healthy=1, returns=1)
    assert after({"entropy": 0.1}, state=state, begin=4).on(RULES) == ()


@pytest.mark.parametrize(("value", "broken"), [(3.9, True), (4.0, False), (9.0, False), (9.1, True)])
def test_a_value_on_a_bound_is_within_it(value: float, broken: bool) -> None:
    assert out_of_bounds(value, RULES["reply_tokens"]) is broken


@given(st.lists(st.dictionaries(st.sampled_from(sorted(RULES)), st.floats(0, 12))), st.integers(0, 20))
def test_a_state_that_is_taken_up_goes_on_as_if_it_had_never_been_left(
    measurements: list[dict[str, float]], place: int
) -> None:
    begun = after(*measurements[:place])
    assert after(*measurements[place:], state=begun, begin=min(place, len(measurements)) + 1) == after(*measurements)


def test_every_monitor_has_a_meaning_and_words_name_bound_and_value() -> None:
    assert set(MEANINGS) == set(MONITORS)
    words = in_words("entropy", 0.25, RULES["entropy"])
    assert words.startswith("entropy must be at least 1, and is 0.25 (2 measurements in a row were not): ")
    assert "at least 4 and at most 9" in in_words("reply_tokens", 20.0, RULES["reply_tokens"])


def counted(name: str, history: Sequence[Values]) -> int:
    """The number of a guard after these iterations."""
    counts: dict[str, int] = {}
    for values in history:
        counts = in_a_row(counts, values)
    return counts[name]


def test_a_guard_counts_iterations_up_to_the_last() -> None:
    dead, alive = {"zero_variance_groups": 1.0, "success": 0.5}, {"zero_variance_groups": 0.9}
    assert counted("zero_variance_groups", [dead, alive, dead, dead]) == 2
    assert counted("zero_variance_groups", [dead, alive]) == 0
    assert counted("truncated_replies", [{"truncated_replies": 0.99}, {"truncated_replies": 1.0}]) == 1
    assert counted("no_signal", [{"no_signal": 1.0}] * 3) == 3
    assert [counted(name, [{"success": 0.0}]) for name in sorted(COUNTED)] == [0] * len(COUNTED), "nothing was measured"


@pytest.mark.parametrize("name", ["zero_variance_groups", "no_signal"])
def test_groups_that_are_all_solved_are_no_failure(name: str) -> None:
    assert counted(name, [{name: 1.0, "success": 1.0}] * 9) == 0
    assert counted(name, [{name: 1.0, "success": 1.0}, {name: 1.0, "success": 0.99}]) == 1


def test_every_guard_says_what_it_means_what_to_change_and_which_policy_is_good() -> None:
    assert set(COUNTED) < set(GUARDS)
    for name, advice in GUARDS.items():
        said = message(name, "it was seen", "policy/abc")
        assert all(part in said for part in (name, "it was seen", advice.meaning, advice.change, "policy/abc"))


def refused(**settings: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(PARAMETERS, (), {name.replace("__", "."): value for name, value in settings.items()})
    return str(caught.value)


def test_rules_that_make_no_sense_are_refused() -> None:
    assert "did you mean 'entropy'" in refused(alarms__rules__entrop={"below": 1.0})
    assert "must have a bound" in refused(alarms__rules__entropy={"patience": 2})
    assert "below must be at most above" in refused(alarms__rules__entropy={"below": 2.0, "above": 1.0})
    assert "rules.kl_warm_start must be measured; found monitors.probe_every: null" in refused(
        alarms__rules__kl_warm_start={"above": 1.0}, monitors__probe_every=None
    )
    unprobed = {"monitors.probe_every": None, "alarms.rules.entropy": {"below": 1.0}}
    assert load(PARAMETERS, (), unprobed).alarms.rules["entropy"] == AlarmRule(below=1.0), "it needs no probe"


def test_a_response_that_could_not_happen_or_would_change_nothing_is_refused() -> None:
    none = dict.fromkeys(load(PARAMETERS).alarms.rules)
    assert "there are 20 iterations" in refused(alarms__response="stop", alarms__rules=none)
    # The start is 5 iterations, a median needs 3 norms before, and the probe is made every 5 iterations.
    for name, patience, earliest in (
        ("entropy_of_start", 20, 25),
        ("entropy", 25, 25),
        ("gradient_norm_of_median", 30, 33),
        ("kl_warm_start", 10, 46),
    ):
        late = {**none, name: {"below": 0.1, "patience": patience}}
        said = refused(alarms__response="stop", alarms__rules=late, monitors__probe_every=5)
        assert f"in iteration {earliest} at the earliest" in said
    two = {**none, "entropy": {"below": 0.1, "patience": 30}, "success": {"below": 0.1, "patience": 21}}
    assert "in iteration 21 at the earliest" in refused(alarms__response="stop", alarms__rules=two)
    just_in_time = {**two, "success": {"below": 0.1, "patience": 20}}
    chosen = {"alarms.response": "stop", "alarms.rules": just_in_time}
    assert load(PARAMETERS, (), chosen).optimization.iterations == 20
    assert "must change something" in refused(alarms__response="return", alarms__learning_rate_factor=1.0)
    for response, factor in (("stop", 1.0), ("return", 0.5)):
        chosen = {"alarms.response": response, "alarms.learning_rate_factor": factor}
        assert load(PARAMETERS, (), chosen).alarms.response == response
    assert "uncertainty" in refused(alarms__selection={"rule": "uncertain", "options": {}})


def test_a_value_that_is_just_out_of_bounds_is_written_so_that_one_sees_it() -> None:
    rule = AlarmRule(above=0.37)
    assert "at most 0.37, and is 0.3704:" in in_words("truncated_replies", 0.37037, rule)
    assert "at most 0.37, and is 0.5:" in in_words("truncated_replies", 0.5, rule)
