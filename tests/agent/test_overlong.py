"""The overlong penalty, by hand."""

from __future__ import annotations

import pytest

from turnwise.agent.added_rewards import reward_function
from turnwise.agent.overlong import penalties
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.world import Task


def of_lengths(*lengths: int) -> Trajectory:
    turns = tuple(Turn("", (1,), "", (1,) * length, (-1.0,) * length) for length in lengths)
    return Trajectory(Task("hill", "a", "test", 0), 0, 0, turns, Ending.FAILURE, "")


def test_the_penalty_falls_in_a_line_over_the_buffer() -> None:
    # longest 100, buffer 20: nothing up to 80, -0.05 a token from there, -1 at 100 and beyond.
    found = penalties(of_lengths(10, 80, 81, 90, 100, 120), longest=100, buffer=20)
    assert found == pytest.approx([0.0, 0.0, -0.05, -0.5, -1.0, -1.0])


def test_it_is_a_reward_of_this_package_and_refuses_a_buffer_that_is_too_long() -> None:
    named = reward_function("overlong")
    assert named.function is penalties and named.require is not None
    named.require(longest=100, buffer=100)
    with pytest.raises(ConfigurationError, match=r"\b101\b.*\b100\b.*TW-reversed-bounds"):
        named.require(longest=100, buffer=101)
