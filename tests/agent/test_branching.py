"""Branching groups: what is trained, what it costs, and with what it makes no sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.agent.branching import cost, group_of, trained_at, turn_of
from turnwise.agent.branching_rollout import _trained_as
from turnwise.credit import ESTIMATORS
from turnwise.credit.requirements import require_branching
from turnwise.credit.selection import RULES
from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.errors import ConfigurationError
from turnwise.world import Task


def trajectory(group: int, *lengths: int) -> Trajectory:
    """Replies of these many tokens."""
    turns = tuple(Turn("seen", (1, 2), "said", (3,) * length, (-1.0,) * length) for length in lengths)
    return Trajectory(Task("w", "t", "train", 0), group, 0, turns, Ending.FAILURE, "end")


def test_a_group_is_numbered_by_prompt_and_turn_and_the_first_turns_are_the_prompts_own() -> None:
    assert [group_of(prompt, 0, 5) for prompt in range(5)] == list(range(5))
    numbers = [group_of(prompt, turn, 5) for turn in range(3) for prompt in range(5)]
    assert numbers == list(range(15))
    assert [turn_of(number, 5) for number in numbers] == [0] * 5 + [1] * 5 + [2] * 5


def test_one_reply_is_trained_and_the_others_are_context() -> None:
    whole = trajectory(0, 2, 3, 4)
    sequence = trained_at(whole, 1).segments()[0]
    assert sum(sequence.mask) == 3
    assert sorted(set(sequence.turn_of_token)) == [-1, 1]
    assert sequence.tokens == whole.segments()[0].tokens


def test_the_cost_is_that_of_the_tokens_which_were_sampled_over_those_of_independent_groups() -> None:
    # One prompt. Turn 1's group: 10 + 20 and 10 + 30 tokens sampled, 10 + 10 of them trained. Turn 2's group repeats
    # the trunk's first reply, which costs nothing: 25 and 15 sampled and trained.
    found = cost(
        [
            trained_at(trajectory(0, 10, 20), 0),
            trained_at(trajectory(0, 10, 30), 0),
            trained_at(trajectory(1, 10, 25), 1),
            trained_at(trajectory(1, 10, 15), 1),
        ],
        prompts=1,
    )
    assert found == {
        "branching/groups": 2,
        "branching/trajectories": 4,
        "branching/sampled_tokens": 110,
        "branching/independent_tokens": 70,
        "branching/trained_tokens": 60,
        "branching/cost": 110 / 70,
    }


def test_a_cost_without_independent_episodes_has_no_ratio() -> None:
    assert "branching/cost" not in cost([], prompts=3)


ACCEPTED = (
    *("grpo", "mt-grpo", "rloo", "reinforce++-baseline", "opo", "gpg", "maxrl", "grpo-passk", "gdpo"),
    "optimal-token-baseline",
)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_that_compare_within_groups_go_with_branching(estimator: str) -> None:
    if estimator in ACCEPTED:
        require_branching(estimator, "all")
        return
    reasons = {
        **dict.fromkeys(("gigpo", "hgpo"), "its anchor states are what"),
        **dict.fromkeys(("tree-grpo", "at2po"), "its trees are those of"),
    }
    reason = reasons.get(estimator, "it compares nothing within a group")
    with pytest.raises(ConfigurationError, match=rf"rloo.*reinforce\+\+-baseline.*{reason}.*TW-branching-estimator"):
        require_branching(estimator, "all")


@pytest.mark.parametrize("rule", RULES)
def test_a_selection_that_counts_prompts_is_refused(rule: str) -> None:
    if rule == "mixed":
        with pytest.raises(ConfigurationError, match="TW-scheme-with-mixed"):
            require_branching("grpo", rule)
    else:
        require_branching("grpo", rule)


def test_a_replayed_turn_is_trained_whatever_a_reward_of_ones_own_pays_it_in_this_branch() -> None:
    def paid(*numbers: float) -> Trajectory:
        whole = trajectory(0, 2, 3)
        turns = zip(whole.turns, numbers, strict=True)
        return replace(whole, turns=tuple(replace(turn, rewards={"own": number}) for turn, number in turns))

    first, *others = (branch := paid(0.25, 1.0)).turns
    replayed = replace(branch, turns=(replace(first, trained=False), *others))
    assert [turn.trained for turn in _trained_as(paid(0.5, 0.0), replayed).turns] == [True, True]
    other = replace(first, trained=False, reply_tokens=(4, 4))
    assert not _trained_as(paid(0.5, 0.0), replace(branch, turns=(other, *others))).turns[0].trained
