"""The stage `select`: which groups of a rollout are trained on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stage_samples import saved, trajectory, turn

from tasks.credit.select import SelectParameters, read_choice, select
from turnwise.config.schema import RewardSection, SelectionSection
from turnwise.credit.selection import SELECTION_FILE
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("turnwise_home")

REWARDS = {"goal": RewardSection(level="outcome", weight=2.0), "tool": RewardSection(level="turn", weight=0.5)}
# Weighted returns: group 0 has 2 and 0, group 1 has 0 and 0, group 2 has 0.5 and 0, group 3 has one episode.
EPISODES = [
    trajectory(0, 0, [turn({"goal": 1.0})]),
    trajectory(0, 1, [turn()]),
    trajectory(1, 0, [turn()]),
    trajectory(1, 1, [turn(), turn()]),
    trajectory(2, 0, [turn({"tool": 1.0}), turn()]),
    trajectory(2, 1, [turn({"unweighted": 7.0})]),
    trajectory(3, 0, [turn({"goal": 1.0})]),
]
ROOT_OF_TWO = 2.0**0.5


def selected(rule: str, wanted: int = 4, iteration: int = 1, **options: Any) -> Reference:
    parameters = SelectParameters(
        rewards=REWARDS,
        selection=SelectionSection(rule=rule, options=options),
        wanted=wanted,
        seed=1,
        iteration=iteration,
    )
    return select.fn(parameters, rollout=saved(EPISODES))


def test_the_deviations_are_those_of_the_weighted_returns() -> None:
    content = json.loads((default_store().folder(selected("all")) / SELECTION_FILE).read_text())
    # The unbiased deviation of x and y is |x - y| / sqrt(2); that of one episode is 0.
    expected = {"0": 2 / ROOT_OF_TWO, "1": 0.0, "2": 0.5 / ROOT_OF_TWO, "3": 0.0}
    assert content["deviations"] == pytest.approx(expected)
    assert (content["kept"], content["missing"]) == ([0, 1, 2, 3], 0)


def test_the_groups_that_a_rule_keeps_are_read_back_and_the_rest_is_counted() -> None:
    reference = selected("uncertainty", share=0.5)
    assert ((choice := read_choice(reference)).kept, choice.missing) == ((0, 2), 0)
    metrics = default_store().metrics(reference)
    assert (metrics["groups_sampled"], metrics["groups_kept"], metrics["groups_dropped"]) == (4, 2, 2)
    assert (metrics["groups_without_spread"], metrics["kept_without_spread"]) == (2, 0)
    assert metrics["kept_deviation"] == pytest.approx(1.25 / ROOT_OF_TWO)
    assert metrics["kept_share_of_deviation"] == pytest.approx(1.0)


def test_a_rule_that_samples_again_says_how_many_groups_are_missing() -> None:
    reference = selected("mixed", wanted=5)
    assert ((choice := read_choice(reference)).kept, choice.missing) == ((0, 2), 3)
    assert read_choice(selected("mixed", wanted=1)).kept == (0,), "no more than are wanted"


def test_only_the_random_rule_depends_on_the_iteration() -> None:
    assert len({selected("random", share=0.5, iteration=number) for number in range(1, 9)}) > 1
    assert selected("random", share=0.5) == selected("random", share=0.5)
    assert selected("cumulative", iteration=1) == selected("cumulative", iteration=2)


def test_an_unknown_rule_or_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"uncertainty.*TW-unknown-name"):
        selected("uncertain")
    with pytest.raises(ConfigurationError, match=r"fraction.*TW-unknown-option"):
        selected("uncertainty", fraction=0.5)
