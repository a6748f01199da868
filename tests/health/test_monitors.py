"""Monitors: golden numbers worked by hand, and what must hold of any batch."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.health.monitors import (
    MONITORS,
    OF_BATCH,
    OF_HISTORY,
    compare,
    information,
    measure,
    remembered,
    thought_length,
)
from turnwise.world import Task

END = 9
TASK = Task("hill", "hill/train/0", "train", 0)


def turn(*tokens: int, log_probability: float = -0.5, invalid: str | None = None, trained: bool = True) -> Turn:
    return Turn("", (1,), "", tokens, (log_probability,) * len(tokens), invalid=invalid, trained=trained)


def trajectory(group: int, *turns: Turn, success: bool = False) -> Trajectory:
    return Trajectory(TASK, group, 0, turns, Ending.SUCCESS if success else Ending.FAILURE, "")


def measured(*trajectories: Trajectory, rewards: list[float] | None = None, n_gram: int = 2) -> dict[str, float]:
    rewards = rewards or [0.0] * len(trajectories)
    return measure(trajectories, rewards, end_tokens={END}, n_gram=n_gram)


def test_the_deviation_is_unbiased_within_groups_and_its_mean_counts_groups_alike() -> None:
    batch = [trajectory(group, turn(2, END)) for group in (0, 0, 1, 1, 2, 2)]
    found = measured(*batch, rewards=[0.0, 1.0, 0.3, 0.3, 0.0, 0.0])
    assert found["reward_deviation"] == pytest.approx(math.sqrt(0.5) / 3)
    assert found["zero_variance_groups"] == pytest.approx(2 / 3)


def test_entropy_is_the_mean_over_reply_tokens_of_minus_the_sampled_log_probability() -> None:
    found = measured(trajectory(0, turn(2, 3, END, log_probability=-1.0), turn(END, log_probability=-3.0)))
    assert found["entropy"] == 1.5  # three tokens of 1 nat and one of 3
    assert found["reply_tokens"] == 2.0


def test_a_reply_that_does_not_end_was_cut_off_and_one_without_actions_is_invalid() -> None:
    replies = turn(2, END), turn(2, 3), turn(4, END, invalid="no answer"), turn(5, 6, END), turn(END, 7)
    found = measured(trajectory(0, *replies))
    assert (found["truncated_replies"], found["invalid_replies"]) == (0.4, 0.2)


def test_repeated_phrases_are_counted_within_a_reply_and_shared_ones_across_the_first_replies_of_a_group() -> None:
    # 2 2 2 2: three pairs, one of them distinct. 2 3 4: two pairs, both distinct. So 2 of 5 are repeats.
    found = measured(trajectory(0, turn(2, 2, 2, 2)), trajectory(1, turn(2, 3, 4)))
    assert found["repeated_phrases"] == pytest.approx(2 / 5)
    assert found["shared_phrases"] == 0.0  # of the same tokens, but in another group
    # 2 3 4 and 2 3 5 share one of two pairs each.
    found = measured(trajectory(0, turn(2, 3, 4)), trajectory(0, turn(2, 3, 5), turn(2, 3, 4)))
    assert found["shared_phrases"] == 0.5
    assert found["repeated_phrases"] == 0.0
    of_short_replies = measured(trajectory(0, turn(2)), trajectory(0, turn(2)))
    assert (of_short_replies["repeated_phrases"], of_short_replies["shared_phrases"]) == (0.0, 0.0)


def test_distinct_replies_are_those_to_the_same_context() -> None:
    same = [trajectory(0, turn(2, END), turn(number, END)) for number in (3, 4, 5, 6)]
    assert measured(*same)["distinct_replies"] == 0.25
    assert measured(*same[:1], trajectory(0, turn(7, END)))["distinct_replies"] == 1.0


def test_replies_that_are_not_trained_on_are_not_looked_at() -> None:
    own = trajectory(0, turn(2, END), turn(3, 4, END))
    with_context = trajectory(0, turn(7, 7, 7, 7, invalid="cut", trained=False), turn(2, END), turn(3, 4, END))
    assert measured(own, own) == measured(with_context, with_context)


def test_nothing_is_said_of_a_batch_without_a_reply() -> None:
    assert measured(trajectory(0, turn(2, END, trained=False))) == {}


def test_the_start_is_the_mean_of_the_first_iterations_and_the_gradient_is_compared_with_its_running_median() -> None:
    history = [{"entropy": value, "gradient_norm": norm} for value, norm in ((2.0, 1.0), (4.0, 2.0), (3.0, 9.0))]
    assert compare(history, start=3, window=2) == {}  # the start is not over, and two norms have no median to speak of
    history.append({"entropy": 1.5, "gradient_norm": 6.0})
    assert compare(history, start=3, window=10) == {"entropy_of_start": 0.5, "gradient_norm_of_median": 3.0}
    history += [{}, {"entropy": 6.0, "gradient_norm": 18.0}]  # an iteration that was skipped has no gradient
    assert compare(history, start=3, window=3) == {"entropy_of_start": 2.0, "gradient_norm_of_median": 3.0}


@given(
    st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(0.1, 9.0) | st.none()), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_what_is_remembered_of_a_history_does_not_grow_and_compares_as_the_whole_history_does(
    measured: list[tuple[float, float | None]], start: int, window: int
) -> None:
    whole: list[dict[str, float]] = []
    kept: list[dict[str, float]] = []
    for entropy, norm in measured:
        values = {"entropy": entropy, **({} if norm is None else {"gradient_norm": norm})}
        whole, kept = [*whole, values], [*kept, values]
        assert compare(kept, start=start, window=window) == compare(whole, start=start, window=window)
        kept = [dict(each) for each in remembered(kept, start=start, window=window)]
        assert len(kept) <= start + window + 1


def test_thoughts_that_know_their_prompts_carry_all_information_and_templates_none() -> None:
    knowing = [[0.0, -50.0], [-50.0, 0.0]]
    assert information(knowing) == {"mutual_information": pytest.approx(math.log(2)), "retrieval_accuracy": 1.0}
    templates = [[-3.0, -3.0], [-8.0, -8.0]]
    assert information(templates) == {"mutual_information": pytest.approx(0.0), "retrieval_accuracy": 0.5}
    # p of thought 1 under its prompt 3/4 of the sum: log(3/4) + log 2; of thought 2 1/4: log(1/4) + log 2.
    half = [[math.log(3), 0.0], [math.log(3), 0.0]]
    assert information(half)["mutual_information"] == pytest.approx((math.log(1.5) + math.log(0.5)) / 2)
    assert information(half)["retrieval_accuracy"] == 0.5


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.lists(st.floats(-300, 0), min_size=n, max_size=n), min_size=n, max_size=n)
    )
)
def test_information_is_at_most_the_logarithm_of_the_prompts_and_ignores_what_fits_all(
    scores: list[list[float]],
) -> None:
    found = information(scores)
    assert found["mutual_information"] <= math.log(len(scores)) + 1e-9
    assert 0.0 <= found["retrieval_accuracy"] <= 1.0
    shifted = information([[value - 7.0 for value in row] for row in scores])
    assert shifted["mutual_information"] == pytest.approx(found["mutual_information"], abs=1e-9)


def test_one_thought_has_nothing_to_be_told_from() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        information([[0.0]])


def test_a_thought_ends_with_the_token_that_completes_it() -> None:
    texts = {1: "<think>", 2: "go", 3: "ing", 4: "</think>", END: ""}

    def length(thought: str, *tokens: int) -> int:
        reply = Turn("", (), "", tokens, (0.0,) * len(tokens), thought)
        return thought_length(reply, lambda chosen: "".join(texts[token] for token in chosen))

    assert length("going", 1, 2, 3, 4, END) == 3
    assert length("going", 1, 2, 3) == 3, "cut off there"
    assert length("go", 2, 4, END) == 1, "at once"
    assert length("", 1, 4, END) == 0
    assert length("gone", 1, 2, END) == 0, "of other text"


def test_every_monitor_of_a_batch_is_measured_and_none_has_two_names() -> None:
    found = measured(trajectory(0, turn(2, END)), trajectory(0, turn(3, END)))
    assert tuple(found) == OF_BATCH
    assert len(set(MONITORS)) == len(MONITORS) and set(OF_HISTORY) <= set(MONITORS)
