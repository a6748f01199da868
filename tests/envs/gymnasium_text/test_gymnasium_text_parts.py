"""How observations are worded, and the plan that the oracle follows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from envs.gymnasium_text import GymnasiumText
from envs.gymnasium_text.planner import DISCOUNT, GamePlan
from envs.gymnasium_text.settings import KNOWN
from envs.gymnasium_text.views import Template, without_colours

# Views


def test_a_number_is_taken_apart_by_the_sizes_of_its_fields() -> None:
    # Taxi: ((row * 5 + column) * 5 + passenger) * 4 + goal, and 328 = ((3 * 5 + 1) * 5 + 2) * 4 + 0.
    known = KNOWN["Taxi-v4"]
    assert Template(known.template, known.fields).fill(328) == "taxi 3 1, passenger yellow, goal red"
    assert Template(known.template, known.fields).fill(np.int64(499)) == "taxi 4 4, passenger in the taxi, goal blue"


def test_parts_are_filled_in_by_order_or_by_name() -> None:
    template = Template("{b}-{a}-{b}", [{"a": ["no", "yes"]}, {"b": None}])
    assert template.fill((1, 7)) == template.fill(np.array([1, 7])) == template.fill({"b": 7, "a": 1}) == "7-yes-7"


@pytest.mark.parametrize(
    ("fields", "observation", "message"),
    [
        ([{"a": 3}], (1, 2), "fields must name the 2 parts of .*; found .'a'."),
        ([{"a": 3}], {"b": 1}, "fields must be among the observation's, .'b'.; found .'a'."),
        ([{"a": 3}], 3, "the sizes of fields must multiply to more than any observation; found 3"),
        ([{"a": None}], 3, "field 'a' must have a size"),
        ([{"a": ["no", "yes"]}], (2,), "field 'a' must have a word for every value; found 2 and 2 words"),
    ],
)
def test_an_observation_that_has_not_these_fields_is_refused(fields: Any, observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Template("{a}", fields).fill(observation)


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        (None, [], "template must be a text"),
        ("{c}", [{"a": 3}], "template must name only fields; found .'c'. beside .'a'."),
        ("{a}", {"a": 3}, "fields must be a list of one name each"),
        ("{a}", [{"a": 3, "b": 2}], "fields must be a list of one name each"),
        ("{a}", [{"a": 0}], "field 'a' must have a number of values, a list of words, or null; found 0"),
    ],
)
def test_a_wrong_template_is_refused(text: Any, fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Template(text, fields)


def test_colours_become_marks() -> None:
    assert without_colours("\n\x1b[41mS\x1b[0mFFF\nFHFH\n") == "<S>FFF\nFHFH"
    assert without_colours("|\x1b[35m\x1b[43mY\x1b[0m\x1b[0m| : |\x1b[34;1mB\x1b[0m: |") == "|<Y>| : |<B>: |"


# The planner


def test_a_plan_by_hand() -> None:
    # From 0, action 0 wins with probability 1/2, else stays; action 1 goes to 1, from where action 0 surely wins.
    win, lose = (1.0, 2, 1.0, True), (1.0, 2, 0.0, True)
    model = {
        0: {0: [(0.5, 2, 1.0, True), (0.5, 0, 0.0, False)], 1: [(1.0, 1, 0.0, False)]},
        1: {0: [win], 1: [lose]},
        2: {0: [lose], 1: [lose]},
    }
    plan = GamePlan(model, [0, 1], success=1.0)
    assert (plan.value(0, 0), plan.value(0, 1)) == (0.0, 0.5)
    assert plan.value(0, 2) == pytest.approx(DISCOUNT)
    assert (plan.action(0, 1), plan.action(0, 2)) == (0, 1)
    # Two sure actions can be played in one turn; after an unsure one the oracle looks.
    assert plan.sequence(0, 2, 2) == (1, 0)
    assert plan.sequence(0, 2, 1) == (1,)
    assert plan.sequence(0, 1, 1) == (0,)
    # What ends the episode without the reward is no success, and reaching state 2 is nothing by itself.
    assert plan.value(2, 5) == 0


def test_a_goal_that_is_out_of_reach_is_walked_towards() -> None:
    # Three sure steps to the goal, and only one left: the step is taken all the same.
    model = {
        state: {0: [(1.0, state, 0.0, False)], 1: [(1.0, state + 1, float(state == 2), state == 2)]}
        for state in range(3)
    } | {3: {0: [(1.0, 3, 0.0, True)], 1: [(1.0, 3, 0.0, True)]}}
    plan = GamePlan(model, [0, 1], success=1.0)
    assert plan.value(0, 1) == 0 and plan.action(0, 1) == 1
    assert plan.sequence(0, 1, 1) == (1,)


def test_every_start_of_the_taxi_is_solved_within_the_turns() -> None:
    world = GymnasiumText()
    taxi = gymnasium.make("Taxi-v4").unwrapped
    starts = np.flatnonzero(taxi.initial_state_distrib)
    assert len(starts) == 300 and world._game.plan is not None
    assert min(world._game.plan.value(int(state), world.limits.turns) for state in starts) > 0.98
