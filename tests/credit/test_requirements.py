"""What a rule declares of itself is what a configuration is refused by."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from turnwise.config.options import read_options
from turnwise.config.schema import Credit, ThoughtCredit
from turnwise.credit import ESTIMATORS
from turnwise.credit.requirements import (
    CreditInputs,
    needs_critic,
    require_credit,
    require_privileged,
    require_trees,
    teacher_of,
)
from turnwise.errors import ConfigurationError

EVERYTHING = CreditInputs(
    world="corridor",
    names_states=True,
    group_size=2,
    acting_turns=2,
    further_turns=False,
    token_rewards=False,
    names_answers=True,
)
PAPER = Credit(estimator="mt-grpo", options={"rule": "paper"})


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_declarations_name_options_that_the_rule_has_with_values_that_it_takes(name: str) -> None:
    estimator = ESTIMATORS[name]
    for restriction in estimator.restrictions:
        for value in (restriction.value, restriction.instead):
            assert read_options(name, estimator.function, {restriction.option: value})[restriction.option] == value
        assert estimator.restriction({restriction.option: restriction.instead}) is None
    for option, (other, values) in estimator.belongs_to.items():
        assert read_options(name, estimator.function, {})[option] is None
        for value in values:
            read_options(name, estimator.function, {other: value})


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_rule_is_accepted_where_there_is_everything(name: str) -> None:
    require_credit(Credit(estimator=name, options={}), EVERYTHING)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_groups_of_one_are_refused_by_the_rules_that_compare_and_by_no_other(name: str) -> None:
    alone = replace(EVERYTHING, group_size=1)
    if not ESTIMATORS[name].grouped:
        require_credit(Credit(estimator=name, options={}), alone)
        return
    with pytest.raises(ConfigurationError, match=re.escape(f"rollout.group_size: 1 with credit.estimator: {name}")):
        require_credit(Credit(estimator=name, options={}), alone)


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        (
            {"acting_turns": 3},
            "is defined on at most 2 turns; training allows 3; set credit",
        ),
        ({"further_turns": True}, "is defined on at most 2 turns, and a summary, a plan or a lesson is a turn"),
        ({"token_rewards": True}, "has no place for rewards per token"),
    ],
)
def test_a_restriction_holds_under_its_value_alone(lacking: dict[str, Any], reason: str) -> None:
    inputs = replace(EVERYTHING, **lacking)
    require_credit(Credit(estimator="mt-grpo", options={}), inputs)
    require_credit(PAPER, EVERYTHING)
    with pytest.raises(ConfigurationError, match=f"credit.estimator mt-grpo with rule 'paper' {reason}"):
        require_credit(PAPER, inputs)
    thought = ThoughtCredit(estimator="mt-grpo", options={"rule": "paper"}, weight=0.5)
    with pytest.raises(ConfigurationError, match=r"credit\.thought\.estimator mt-grpo with rule 'paper'"):
        require_credit(Credit(estimator="grpo", options={}, thought=thought), inputs)


def test_states_must_have_names_where_visits_to_them_are_compared() -> None:
    for name in ("gigpo", "hgpo"):
        with pytest.raises(ConfigurationError, match=r"'corridor'.*TW-world-without-states"):
            require_credit(Credit(estimator=name, options={}), replace(EVERYTHING, names_states=False))


def test_an_episode_that_is_shown_its_end_must_be_one_sequence() -> None:
    with pytest.raises(ConfigurationError, match=r"agent\.context.*TW-context-not-whole"):
        require_credit(Credit(estimator="self-distillation", options={}), replace(EVERYTHING, rewrites_context=True))
    other = Credit(estimator="self-distillation", options={"teacher": "base-3m"})
    require_credit(other, replace(EVERYTHING, rewrites_context=True))  # it reads what the policy has read
    assert teacher_of(other) == "base-3m"


def test_one_teacher_scores_a_rollout() -> None:
    thought = ThoughtCredit(estimator="self-distillation", options={"teacher": "base-3m"}, weight=0.5)
    assert teacher_of(Credit(estimator="grpo", options={}, thought=thought)) == "base-3m"
    with pytest.raises(ConfigurationError, match=r"base-3m.*TW-two-teachers"):
        require_credit(Credit(estimator="self-distillation", options={}, thought=thought), EVERYTHING)


@pytest.mark.parametrize("rule", ["information-gain", "trace"])
def test_no_answer_is_asked_for_in_a_turn_in_which_none_can_be_given(rule: str) -> None:
    with pytest.raises(ConfigurationError, match="TW-context-not-whole"):
        require_credit(Credit(estimator=rule, options={}), replace(EVERYTHING, further_turns=True))
    with pytest.raises(ConfigurationError, match=r"'corridor'.*TW-world-without-answers"):
        require_credit(Credit(estimator=rule, options={}), replace(EVERYTHING, names_answers=False))


def test_a_critic_is_shown_right_answers_of_whole_episodes_only() -> None:
    require_privileged(EVERYTHING)
    with pytest.raises(ConfigurationError, match=r"'corridor'.*TW-world-without-answers"):
        require_privileged(replace(EVERYTHING, names_answers=False))
    with pytest.raises(ConfigurationError, match=r"context must only grow.*TW-context-not-whole"):
        require_privileged(replace(EVERYTHING, rewrites_context=True))


def test_the_rules_with_a_critic_are_those_that_need_values() -> None:
    with_critic = ["gae", "turn-gae", "bi-level-gae", "length-adaptive-gae", "cross-level-gae", "archer", "sweet-rl"]
    assert [name for name in ESTIMATORS if needs_critic(name)] == with_critic


@pytest.mark.parametrize(
    ("credit", "scheme", "trees", "group_size", "selection", "message"),
    [
        (
            "tree-grpo",
            "independent",
            None,
            6,
            "all",
            "tree-grpo.*TW-scheme-not-tree",
        ),
        ("grpo", "independent", 2, 6, "all", "TW-scheme-not-tree"),
        ("tree-grpo", "tree", None, 6, "all", "TW-tree-shape"),
        ("tree-grpo", "tree", 4, 6, "all", r"\b4\b.*TW-tree-shape"),
        ("tree-grpo", "tree", 6, 6, "all", "TW-tree-shape"),
        ("gigpo", "tree", 2, 6, "all", "TW-tree-with-visits"),
        ("tree-grpo", "tree", 2, 6, "mixed", "TW-scheme-with-mixed"),
    ],
)
def test_trees_that_cannot_be_grown_or_compared_are_refused(
    credit: str, scheme: str, trees: int | None, group_size: int, selection: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        require_trees(Credit(estimator=credit, options={}), scheme, trees, group_size, selection)


@pytest.mark.parametrize("name", ["tree-grpo", "grpo", "reinforce++"])
def test_trees_go_with_rules_that_compare_no_states(name: str) -> None:
    require_trees(Credit(estimator=name, options={}), "tree", 2, 6, "all")
