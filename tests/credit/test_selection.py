"""Prompt selection by hand, ties and batches without spread among it, and what holds for any batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit.group_relative import normalise
from turnwise.credit.selection import (
    RULES,
    group_deviations,
    require_selection,
    select,
    trainable,
)
from turnwise.data.trajectory import Ending, Trajectory, Turn, trajectory_arrays
from turnwise.errors import ConfigurationError
from turnwise.world import Task

# Eight groups; a quarter of them is two. The largest is 7, then come 2 and 4, 5, 3 and 6; 0 and 1 have none.
DEVIATIONS = {0: 0.0, 1: 0.0, 2: 0.5, 3: 0.25, 4: 0.5, 5: 0.375, 6: 0.25, 7: 0.625}
BATCHES = st.dictionaries(
    st.integers(0, 99), st.one_of(st.just(0.0), st.floats(0.0, 10.0, allow_subnormal=False)), min_size=1, max_size=12
)


def test_deviations_are_those_of_raw_rewards_by_hand() -> None:
    # 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 = 3/4, over 3: 1/4. Deviation 1/2.
    # 0.1 three times: exactly 0, though 0.1 + 0.1 + 0.1 is not 0.3.
    found = group_deviations([5, 9, 5, 9, 5, 9, 5, 3], [1.0, 0.1, 0.0, 0.1, 0.0, 0.1, 0.0, 4.0])
    assert found == {5: pytest.approx(0.5, abs=1e-15), 9: 0.0, 3: 0.0}
    assert list(found) == [5, 9, 3], "in the order in which the groups appear"


def test_a_larger_spread_of_raw_rewards_is_a_larger_deviation_though_normalised_rewards_are_alike() -> None:
    small, large = [0.0, 0.1, 0.0, 0.1], [0.0, 10.0, 0.0, 10.0]
    raw = group_deviations([0] * 4 + [1] * 4, small + large)
    assert raw[1] == pytest.approx(100 * raw[0])
    normalised = group_deviations(
        [0] * 4 + [1] * 4, [*normalise(small, "unbiased", 0.0), *normalise(large, "unbiased", 0.0)]
    )
    assert normalised[0] == pytest.approx(normalised[1]), "what the released filter looked at"


def test_a_pair_has_a_deviation() -> None:
    assert group_deviations([0, 0], [0.0, 1.0]) == {0: pytest.approx(math.sqrt(0.5))}


def of_group(group: int, *trained: bool) -> Trajectory:
    """A trajectory whose replies are trained, or frozen."""
    turns = [Turn("seen", (7,), "said", (9,), (-1.0,), trained=each) for each in trained]
    return Trajectory(Task("w", f"w/{group}", "train", group), group, 0, tuple(turns), Ending.FAILURE, "")


def test_one_reply_that_is_trained_makes_a_trajectory_trainable_where_it_can_be_compared() -> None:
    episodes = [
        of_group(0, True, False),
        of_group(0, False, True),
        of_group(1, False, False),
        of_group(1, True),
        of_group(2, True, True),
        of_group(2),
        of_group(3, True),
        of_group(3, True),
    ]
    trajectories = trajectory_arrays(episodes)
    assert trainable(trajectories, None, grouped=False) == [0, 1, 3, 4, 6, 7]
    assert trainable(trajectories, None, grouped=True) == [0, 1, 6, 7], "nothing to compare 3 and 4 with"
    assert trainable(trajectories, [0, 1], grouped=True) == [0, 1]
    assert trainable(trajectories, [1], grouped=False) == [3]


def test_all_keeps_everything() -> None:
    chosen = select("all", DEVIATIONS, seed=0)
    assert (chosen.kept, chosen.dropped, chosen.missing) == (tuple(range(8)), (), 0)


def test_uncertainty_keeps_the_top_share_and_breaks_a_tie_by_the_order_of_the_batch() -> None:
    # The largest is 7, then 2 and 4 tie: 2 comes first in the batch.
    chosen = select("uncertainty", DEVIATIONS, seed=0)
    assert (chosen.kept, chosen.dropped) == ((2, 7), (0, 1, 3, 4, 5, 6))
    assert select("uncertainty", dict(reversed(DEVIATIONS.items())), seed=0).kept == (7, 4)
    assert select("uncertainty", DEVIATIONS, seed=0, share=0.5).kept == (2, 4, 5, 7)


@pytest.mark.parametrize(
    ("share", "count", "kept"), [(0.25, 7, 1), (0.25, 3, 1), (0.3, 10, 3), (0.29, 100, 29), (1.0, 5, 5)]
)
def test_a_share_is_rounded_down_in_decimal_and_is_never_none(share: float, count: int, kept: int) -> None:
    # 0.29 x 100 must be 29, not 28: in binary 0.29 is below 29 hundredths.
    deviations = {group: float(group) for group in range(count)}
    assert len(select("uncertainty", deviations, seed=0, share=share).kept) == kept


def test_cumulative_keeps_the_smallest_set_that_reaches_its_share() -> None:
    # The sum is 2.5, nine tenths of it 2.25: 0.625 + 0.5 + 0.5 + 0.375 = 2, then 3 comes before 6: 2 + 0.25 = 2.25.
    assert select("cumulative", DEVIATIONS, seed=0).kept == (2, 3, 4, 5, 7)
    # A quarter is 0.625: the first group alone.
    assert select("cumulative", DEVIATIONS, seed=0, share=0.25).kept == (7,)
    # All of it: everything but the zeros.
    assert select("cumulative", DEVIATIONS, seed=0, share=1).kept == (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize("deviation", [0.03, 0.11, 0.12, 1 / 3, 1e-9])
def test_nine_of_ten_equal_groups_are_nine_tenths(deviation: float) -> None:
    # In floating point nine times 0.03 is below 0.9 x (ten times 0.03), and a tenth group would be kept.
    chosen = select("cumulative", dict.fromkeys(range(10), deviation), seed=0)
    assert chosen.kept == tuple(range(9))


def test_a_batch_without_any_spread() -> None:
    nothing = dict.fromkeys(range(4), 0.0)
    assert select("cumulative", nothing, seed=0).kept == ()
    assert select("mixed", nothing, seed=0).kept == ()
    # The top quarter of equals is the first of them, as in the release; the record says that it is worth nothing.
    chosen = select("uncertainty", nothing, seed=0)
    assert chosen.kept == (0,)
    assert chosen.record()["kept_without_spread"] == 1.0
    assert "kept_share_of_deviation" not in chosen.record()


def test_random_keeps_as_many_as_uncertainty_whatever_the_deviations_are() -> None:
    draws = [select("random", DEVIATIONS, seed=seed).kept for seed in range(400)]
    assert all(len(kept) == 2 for kept in draws)
    assert draws == [select("random", DEVIATIONS, seed=seed).kept for seed in range(400)]
    assert draws == [select("random", dict.fromkeys(DEVIATIONS, 1.0), seed=seed).kept for seed in range(400)]
    # Each of 8 groups is drawn 400 x 2 / 8 = 100 times on average, with a deviation of sqrt(400 x 1/4 x 3/4) = 8.7.
    counts = [sum(group in kept for kept in draws) for group in DEVIATIONS]
    assert sum(counts) == 800
    assert all(abs(count - 100) < 5 * 8.7 for count in counts)


def test_mixed_says_which_groups_are_mixed_and_how_many_are_missing() -> None:
    chosen = select("mixed", DEVIATIONS, seed=0)
    assert (chosen.kept, chosen.missing) == ((2, 3, 4, 5, 6, 7), 2)
    # Three more were sampled, two of them mixed: the batch is full, and what comes after it is not needed.
    fuller = select("mixed", {**DEVIATIONS, 8: 0.0, 9: 0.1, 10: 0.1, 11: 0.9}, seed=0, wanted=8)
    assert (fuller.kept, fuller.missing, fuller.dropped) == ((2, 3, 4, 5, 6, 7, 9, 10), 0, (0, 1, 8, 11))


def test_the_record_counts_what_was_dropped_and_what_it_was_like() -> None:
    record = select("uncertainty", DEVIATIONS, seed=0).record()
    assert record == {
        "groups_sampled": 8.0,
        "groups_kept": 2.0,
        "groups_dropped": 6.0,
        "groups_missing": 0.0,
        "groups_without_spread": 2.0,
        "kept_without_spread": 0.0,
        "kept_deviation": 0.5625,
        "dropped_deviation": pytest.approx(1.375 / 6),
        "kept_share_of_deviation": pytest.approx(0.45),
    }


@given(st.sampled_from(sorted(RULES)), BATCHES, st.integers(0, 1000))
def test_every_rule_keeps_a_part_of_the_batch_in_its_order(name: str, deviations: dict[int, float], seed: int) -> None:
    chosen = select(name, deviations, seed=seed)
    groups = list(deviations)
    assert sorted(chosen.kept + chosen.dropped, key=groups.index) == groups
    assert [groups.index(group) for group in chosen.kept] == sorted(groups.index(group) for group in chosen.kept)
    assert not set(chosen.kept) & set(chosen.dropped)


@given(BATCHES, st.sampled_from([0.1, 0.5, 0.9, 1.0]))
def test_no_smaller_set_reaches_the_cumulative_share(deviations: dict[int, float], share: float) -> None:
    kept = [deviations[group] for group in select("cumulative", deviations, seed=0, share=share).kept]
    wanted = share * math.fsum(deviations.values())
    assert all(deviation > 0 for deviation in kept)
    assert math.fsum(kept) >= wanted * (1 - 1e-12)
    if kept:
        assert math.fsum(sorted(kept)[1:]) < wanted * (1 + 1e-12), "without its smallest member it falls short"
        dropped = [deviation for deviation in deviations.values() if deviation > min(kept)]
        assert sum(deviation > min(kept) for deviation in kept) == len(dropped), "every larger one was kept"


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("best", {}, "'best'.*TW-unknown-name"),
        ("uncertainty", {"shares": 0.5}, "'uncertainty'.*'shares'.*TW-unknown-option"),
        ("all", {"share": 0.5}, "'all'.*'share'.*TW-unknown-option"),
        ("random", {"seed": 3}, "'random'.*'seed'.*TW-unknown-option"),
        ("cumulative", {"share": 0.0}, r"share.*0\.0.*TW-option-range"),
        ("uncertainty", {"share": 1.5}, r"share.*1\.5.*TW-option-range"),
        ("uncertainty", {"share": True}, "share.*True.*TW-option-type"),
        ("mixed", {"maximum_rounds": 0}, "maximum_rounds.*TW-option-range"),
        ("mixed", {"maximum_rounds": 2.0}, r"maximum_rounds.*2\.0.*TW-option-type"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        require_selection(name, options)


@pytest.mark.parametrize("deviation", [math.nan, -0.1, math.inf])
def test_a_deviation_that_is_no_deviation_is_refused(deviation: float) -> None:
    with pytest.raises(ValueError, match="group 4 has"):
        select("all", {0: 0.0, 4: deviation}, seed=0)
