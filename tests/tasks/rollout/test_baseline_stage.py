"""The stage `baseline`: a scripted baseline policy on a fixed task set."""

from __future__ import annotations

from typing import Any

import pytest
from stage_samples import Small

from tasks.rollout.evaluate import BaselineParameters, baseline
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation
from turnwise.errors import WorldLost
from turnwise.store import Reference, default_store


def played(small: Small, name: str, **changes: Any) -> Reference:
    values = {"baseline": name, "samples": 4, "seed": 3, "split": "test", **changes}
    return baseline.fn(BaselineParameters(**{**dict(small.play), **values}), task_set=small.task_sets["test"])


def test_the_oracle_solves_the_same_tasks_every_time_and_the_random_policy_fewer(small: Small) -> None:
    oracle, random = (default_store().metrics(played(small, name)) for name in ("oracle", "random"))
    # One of the six goals is further away than the two actions that an episode has.
    shares = [oracle[f"sampled/{name}"] for name in ("success", "pass@2", "pass@4")]
    assert shares == pytest.approx([5 / 6] * 3)
    assert oracle["sampled/reward/invalid_turn"] == random["sampled/reward/invalid_turn"] == 0.0
    assert 0.0 <= random["sampled/success"] < 5 / 6
    assert random["sampled/success"] <= random["sampled/pass@2"] <= random["sampled/pass@4"] <= 1.0


def test_pass_at_k_is_worked_from_the_successes_of_each_task(small: Small) -> None:
    reference = played(small, "random")
    episodes = read_evaluation(reference, SAMPLED)
    assert len(episodes) == 24 and read_evaluation(reference, GREEDY) == []
    of_tasks = [sum(each.success for each in episodes[place : place + 4]) for place in range(0, 24, 4)]
    # Of c successes in 4 samples, 2 of them are all failures in C(4 - c, 2) of 6 cases.
    failing = {0: 6, 1: 3, 2: 1, 3: 0, 4: 0}
    assert default_store().metrics(reference)["sampled/pass@2"] == pytest.approx(
        sum(1 - failing[count] / 6 for count in of_tasks) / 6
    )


def test_the_seed_decides_what_a_random_policy_does(small: Small) -> None:
    assert played(small, "random") == played(small, "random")
    assert played(small, "random") != played(small, "random", seed=4)
    assert played(small, "oracle", samples=1) != played(small, "oracle")


def test_a_baseline_that_the_world_does_not_have_loses_every_episode(small: Small) -> None:
    impatient = small.play.patience.model_copy(update={"world_retries": 0})
    with pytest.raises(WorldLost, match=r"\b12\b.*'nobody'.*TW-too-many-lost"):
        played(small, "nobody", samples=2, patience=impatient)
