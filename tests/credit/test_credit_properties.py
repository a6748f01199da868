"""What holds for any batch."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from credit_samples import batches, close, everything_trained
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.config.options import read_options
from turnwise.credit import ESTIMATORS, CreditBatch, estimate, value_targets

pytestmark = pytest.mark.filterwarnings("ignore:a trajectory that has no other", "ignore:a trajectory that is alone")
Options = dict[str, Any]
examples = settings(max_examples=40)
RULES: list[tuple[str, Options]] = [
    ("grpo", {"rewards": "outcome"}),
    ("grpo", {"rewards": "merged", "deviation": "none"}),
    ("mt-grpo", {"rule": "paper"}),
    ("mt-grpo", {"rule": "per-index"}),
    ("mt-grpo", {"rule": "padded", "to_go": False}),
    ("mt-grpo", {"rule": "return-to-go"}),
    ("mt-grpo", {"rule": "return-to-go", "baseline": "group", "deviation": "population"}),
    ("rloo", {"rewards": "merged"}),
    ("reinforce++", {"gamma": 0.9}),
    ("reinforce++-baseline", {"rewards": "merged"}),
    ("gae", {"gamma": 0.9, "lam": 0.8}),
    ("turn-gae", {"gamma": 0.9, "lam": 0.8}),
    ("bi-level-gae", {"lam": 0.8}),
    ("gigpo", {}),
    ("gigpo", {"similarity": 0.5}),
    ("hgpo", {"episode": True}),
    ("grpo", {"deviation": "batch"}),
    ("opo", {"rewards": "merged"}),
    ("gpg", {}),
    ("maxrl", {}),
    ("grpo-passk", {"rewards": "merged"}),
    ("gdpo", {}),
    ("turn-reinforce", {"gamma": 0.9}),
    ("turn-reinforce", {"over": "batch"}),
    ("length-adaptive-gae", {"alpha": 0.5}),
    ("cross-level-gae", {"lam": 0.8, "lam_turn": 0.5}),
    ("archer", {"gamma": 0.9, "lam": 0.5}),
    ("sweet-rl", {"beta": 0.5, "rewards": "outcome"}),
    ("remax", {}),
    ("information-gain", {"gamma": 0.9}),
    ("information-gain", {"gain": "log-probability", "pooled": "apart", "rewards": "merged"}),
    ("trace", {}),
    ("trace", {"horizon": 1, "gamma": 0.0, "rewards": "merged"}),
    ("tree-grpo", {"rewards": "merged", "within": 0.5}),
    ("at2po", {"rewards": "merged"}),
    ("at2po", {"over": "branches", "against": "parent"}),
    ("at2po", {"over": "uncertain-children"}),
    ("self-distillation", {"gamma": 0.9, "outcome_coefficient": 0.5}),
    ("optimal-token-baseline", {}),
    ("optimal-token-baseline", {"rewards": "turn", "steps": "turn", "alone": "return"}),
]
COMPARING = (
    "grpo",
    "tree-grpo",
    "at2po",
    "mt-grpo",
    "rloo",
    "reinforce++-baseline",
    "gpg",
    "grpo-passk",
    "opo",
    "gdpo",
)
RELATIVE: list[tuple[str, Options]] = [
    *((name, options) for name, options in RULES if name in COMPARING and options.get("deviation") != "batch"),
    ("gigpo", {"gamma": 1.0}),
    ("hgpo", {"gamma": 1.0}),
    ("optimal-token-baseline", {"rewards": "turn"}),
]


def a_batch(data: st.DataObject, options: Options) -> CreditBatch:
    return data.draw(batches(longest=2 if options.get("rule") == "paper" else 4))


def test_every_estimator_is_among_the_rules_whose_properties_are_tested() -> None:
    assert {name for name, _ in RULES} == set(ESTIMATORS)
    assert {name for name, _ in RELATIVE} == {
        name for name, each in ESTIMATORS.items() if each.grouped and each.relative
    }
    assert [name for name in ESTIMATORS if not ESTIMATORS[name].relative] == ["maxrl"]


@pytest.mark.parametrize(("name", "options"), RULES)
@examples
@given(data=st.data())
def test_permuting_trajectories_permutes_advantages(name: str, options: Options, data: st.DataObject) -> None:
    batch = a_batch(data, options)
    order = data.draw(st.permutations(range(len(batch))))
    shuffled = CreditBatch(
        **{field: [entries[index] for index in order] for field, entries in vars(batch).items() if entries is not None}
    )
    expected, found = estimate(name, batch, **options), estimate(name, shuffled, **options)
    assert close(found, [expected[index] for index in order])


@pytest.mark.parametrize(("name", "options"), RULES)
@examples
@given(data=st.data())
def test_there_is_one_advantage_per_turn_or_reply_token(name: str, options: Options, data: st.DataObject) -> None:
    batch = a_batch(data, options)
    counted = batch.trained_turns if ESTIMATORS[name].level == "turn" else batch.trained_tokens
    found = estimate(name, batch, **options)
    assert [len(row) for row in found] == [len(row) for row in counted]
    for row, flags in zip(found, counted, strict=True):
        assert all(math.isfinite(value) for value in row)
        assert all(value == 0.0 for value, flag in zip(row, flags, strict=True) if not flag)


@pytest.mark.parametrize(("name", "options"), RULES)
@examples
@given(data=st.data())
def test_a_turn_that_is_not_trained_changes_no_other_advantage(
    name: str, options: Options, data: st.DataObject
) -> None:
    if "whiten" in read_options(name, ESTIMATORS[name].function, {}):
        options = {**options, "whiten": False}
    batch = a_batch(data, options)
    trained = batch.trained_turns if ESTIMATORS[name].level == "turn" else batch.trained_tokens
    everything = estimate(name, everything_trained(batch), **options)
    expected = [
        [value * flag for value, flag in zip(*rows, strict=True)] for rows in zip(everything, trained, strict=True)
    ]
    assert close(estimate(name, batch, **options), expected)


@pytest.mark.parametrize(("name", "options"), RELATIVE)
@examples
@given(data=st.data())
def test_adding_a_constant_to_the_outcomes_of_a_group_changes_nothing(
    name: str, options: Options, data: st.DataObject
) -> None:
    batch = a_batch(data, options)
    constants = data.draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3))
    shifted = replace(
        batch,
        outcome=[outcome + constants[group] for outcome, group in zip(batch.outcome, batch.group, strict=True)],
    )
    found, expected = estimate(name, shifted, **options), estimate(name, batch, **options)
    for index, (row, before) in enumerate(zip(found, expected, strict=True)):
        for turn, pair in enumerate(zip(row, before, strict=True)):
            if options.get("rule") != "return-to-go" or companions(batch, index, turn):
                assert pair[0] == pytest.approx(pair[1], abs=1e-6)


def companions(batch: CreditBatch, index: int, turn: int) -> int:
    """How many others of the trajectory's group reach a turn."""
    return sum(batch.turns[other] > turn for other in batch.members[batch.group[index]]) - 1


@examples
@given(batch=batches().map(everything_trained))
def test_advantages_sum_to_zero_over_a_group(batch: CreditBatch) -> None:
    for name, options in (
        ("grpo", {"rewards": "merged"}),
        ("grpo", {"deviation": "batch"}),
        ("rloo", {}),
        ("gpg", {}),
        ("gdpo", {}),
        ("reinforce++-baseline", {"whiten": False}),
    ):
        advantages = estimate(name, batch, **options)
        for members in batch.members.values():
            assert math.fsum(advantages[index][0] for index in members) == pytest.approx(0.0, abs=1e-6)


@examples
@given(batch=batches().map(everything_trained))
def test_advantages_sum_to_zero_over_those_of_a_group_that_reach_a_turn(batch: CreditBatch) -> None:
    own = {**batch.__dict__, "outcome": [0.0] * len(batch)}
    for options, given_batch in (
        ({"rule": "return-to-go"}, batch),
        ({"rule": "return-to-go", "baseline": "group"}, batch),
        ({"rule": "per-index", "to_go": False}, CreditBatch(**own)),
    ):
        advantages = estimate("mt-grpo", given_batch, **options)
        for members in batch.members.values():
            for turn in range(max(batch.turns[index] for index in members)):
                here = [advantages[index][turn] for index in members if turn < batch.turns[index]]
                assert len(here) == 1 or math.fsum(here) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "name",
    ["reinforce++", "gae", "bi-level-gae", "turn-gae", "length-adaptive-gae", "cross-level-gae", "archer", "sweet-rl"],
)
@examples
@given(batch=batches())
def test_whitened_advantages_have_mean_0_and_deviation_1_over_what_is_trained(name: str, batch: CreditBatch) -> None:
    trained = batch.trained_turns if ESTIMATORS[name].level == "turn" else batch.trained_tokens
    found = estimate(name, batch)
    counted = [value for rows in zip(found, trained, strict=True) for value, flag in zip(*rows, strict=True) if flag]
    if any(abs(value) > 1e-6 for value in counted):  # else all were equal, but for the rounding of sums
        assert np.mean(counted) == pytest.approx(0.0, abs=1e-6)
        assert np.std(counted, ddof=1) == pytest.approx(1.0, abs=1e-4)


def in_a_padded_row(batch: CreditBatch, index: int, gaps: list[int], gamma: float, lam: float | None) -> list[float]:
    """GAE, or without `lam` the return, by a walk over a row of tokens: a gap of observation tokens full of garbage
    before every reply, padding after the last. Independent of the product: masks instead of places.
    """
    mask: list[bool] = []
    rewards: list[float] = []
    values: list[float] = []
    of_tokens = iter((batch.values or [])[index])
    turns = batch.turn_rewards[index]
    for turn, length in enumerate((batch.reply_lengths or [])[index]):
        mask += [False] * gaps[turn] + [True] * length
        values += [99.0] * gaps[turn] + [next(of_tokens) for _ in range(length)]
        rewards += [0.0] * (gaps[turn] + length - 1) + [turns[turn]]
    rewards[-1] += batch.outcome[index]
    mask, values, rewards = mask + [False] * 3, values + [-99.0] * 3, rewards + [0.0] * 3
    cut = bool(batch.truncated and batch.truncated[index])
    following, next_value = 0.0, (batch.bootstrap or [])[index] if cut else 0.0
    found = []
    for place in reversed(range(len(mask))):
        if not mask[place]:
            continue
        if lam is None:
            following = rewards[place] + gamma * following
        else:
            following = rewards[place] + gamma * next_value - values[place] + gamma * lam * following
        next_value = values[place]
        found.append(following)
    return found[::-1]


@examples
@given(batch=batches().map(everything_trained), gaps=st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_observation_tokens_and_padding_change_nothing(batch: CreditBatch, gaps: list[int]) -> None:
    rows = range(len(batch))
    expected = [in_a_padded_row(batch, index, gaps, 0.9, 0.8) for index in rows]
    assert close(estimate("gae", batch, gamma=0.9, lam=0.8, whiten=False), expected)
    expected = [in_a_padded_row(batch, index, gaps, 0.9, None) for index in rows]
    assert close(estimate("reinforce++", batch, gamma=0.9, whiten=False), expected)


@pytest.mark.parametrize(("name", "options"), [rule for rule in RULES if not ESTIMATORS[rule[0]].needs])
@examples
@given(data=st.data())
def test_rules_of_rewards_do_not_read_lengths_values_or_cuts(name: str, options: Options, data: st.DataObject) -> None:
    batch = a_batch(data, options)
    bare = CreditBatch(group=batch.group, turn_rewards=batch.turn_rewards, outcome=batch.outcome, trained=batch.trained)
    assert estimate(name, batch, **options) == estimate(name, bare, **options)


@examples
@given(batch=batches().map(everything_trained))
def test_without_discount_or_trace_every_gae_is_the_return_minus_the_value(batch: CreditBatch) -> None:
    ended = replace(batch, truncated=None)
    returns = estimate("reinforce++", ended, whiten=False)
    expected = [
        [value - of_critic for value, of_critic in zip(*rows, strict=True)]
        for rows in zip(returns, ended.values or (), strict=True)
    ]
    assert close(estimate("gae", ended, whiten=False), expected)
    assert close(estimate("bi-level-gae", ended, gamma_turn=1.0, whiten=False), expected)
    of_turns = [[row[span[0]] for span in ended.spans(index)] for index, row in enumerate(expected)]
    assert close(estimate("turn-gae", ended, whiten=False), of_turns)
    assert close(value_targets("gae", ended), returns)


@examples
@given(batch=batches().map(everything_trained), gamma=st.floats(0, 1), lam=st.floats(0, 1))
def test_with_replies_of_one_token_all_gae_are_one(batch: CreditBatch, gamma: float, lam: float) -> None:
    short = replace(
        batch,
        reply_lengths=[[1] * turns for turns in batch.turns],
        values=[row[:turns] for row, turns in zip(batch.values or (), batch.turns, strict=True)],
        score_norms=None,
        hindsight=None,
    )
    expected = estimate("gae", short, gamma=gamma, lam=lam, whiten=False)
    assert close(estimate("turn-gae", short, gamma=gamma, lam=lam, whiten=False), expected)
    assert close(estimate("bi-level-gae", short, gamma=0.3, gamma_turn=gamma, lam=lam, whiten=False), expected)
    targets = value_targets("gae", short, gamma=gamma, lam=lam)
    assert close(value_targets("turn-gae", short, gamma=gamma, lam=lam), targets)


@examples
@given(batch=batches(longest=1).map(everything_trained))
def test_with_one_turn_return_to_go_is_rloo_on_merged_rewards(batch: CreditBatch) -> None:
    expected = estimate("rloo", batch, rewards="merged")
    found = estimate("mt-grpo", batch, rule="return-to-go")
    for members in batch.members.values():
        for index in members if len(members) > 1 else ():
            assert found[index] == pytest.approx(expected[index], abs=1e-9)
