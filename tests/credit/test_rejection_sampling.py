"""AgentEvol's choice: one success of each task, at a threshold."""

from __future__ import annotations

import pytest

from turnwise.credit.rejection_sampling import require_shares, successes
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.world import Task


def played(task: str, ending: Ending, score: float = 0.0) -> Trajectory:
    turn = Turn("", (), "", (1,), (0.0,), rewards={"score": score})
    return Trajectory(Task("hill", task, "train", 0), 0, 0, (turn,), ending, "")


WON, LOST = Ending.SUCCESS, Ending.FAILURE


def test_one_success_of_each_task_is_kept_the_first_of_equals() -> None:
    episodes = [played("a", LOST), played("b", WON), played("a", WON), played("a", WON), played("c", LOST)]
    assert successes(episodes, "success", 1.0) == [1, 2]


def test_with_degrees_the_best_that_reaches_the_threshold_is_kept() -> None:
    episodes = [played("b", LOST, 0.4), played("a", LOST, 0.5), played("a", LOST, 0.8), played("c", LOST, 0.5)]
    assert successes(episodes, "score", 0.5) == [2, 3]
    assert successes(episodes, "score", 0.9) == []


def test_a_step_without_the_policys_own_is_refused() -> None:
    require_shares(4, 0.0)
    require_shares(4, 0.75)
    require_shares(4, 1.0)
    with pytest.raises(ConfigurationError, match=r"\b4\b.*TW-empty-share"):
        require_shares(4, 0.9)
    with pytest.raises(ConfigurationError, match=r"\b0\b.*TW-empty-share"):
        require_shares(4, 0.1)
