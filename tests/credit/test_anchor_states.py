"""GiGPO and HGPO, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import close

from turnwise.credit import CreditBatch, estimate, require_options
from turnwise.errors import CreditError

# Three trajectories of one task, all from state a, of which two go on to states that are seen once.
#   totals 1, 0, 0.5 (mean 0.5);  with gamma 0.5 the returns at a are 0.5, 0, 0.5 (mean 1/3)
BATCH = CreditBatch(
    group=[0, 0, 0],
    turn_rewards=[[0.0, 1.0], [0.0, 0.0], [0.5]],
    outcome=[0.0, 0.0, 0.0],
    anchors=[["a", "b"], ["a", "c"], ["a"]],
)


def test_a_state_seen_once_adds_nothing_to_the_episode() -> None:
    found = estimate("gigpo", BATCH, gamma=0.5, omega=2.0, deviation="none")
    assert close(found, [[0.5 + 2 / 6, 0.5], [-0.5 - 2 / 3, -0.5], [0.0 + 2 / 6]])


def test_episodes_and_visits_have_deviations_of_their_own() -> None:
    # episodes: 0.25 + 0.25 over 2: deviation 0.5;  visits to a: 1/36 + 1/9 + 1/36 = 1/6 over 2: deviation sqrt(1/12)
    found = estimate("gigpo", BATCH, gamma=0.5, deviation="unbiased", epsilon=0.0)
    near, far = 1 / 6 * math.sqrt(12), 1 / 3 * math.sqrt(12)
    assert close(found, [[1.0 + near, 1.0], [-1.0 - far, -1.0], [near]])


def test_the_outcome_stands_on_the_last_turn_and_alone_where_it_is_all_that_counts() -> None:
    # outcomes 1, 0, 0: mean 1/3;  returns at a: 0.5 x 1, 0, 0: mean 1/6
    batch = replace(BATCH, outcome=[1.0, 0.0, 0.0])
    found = estimate("gigpo", batch, rewards="outcome", gamma=0.5, deviation="none")
    assert close(found, [[2 / 3 + 1 / 3, 2 / 3], [-1 / 3 - 1 / 6, -1 / 3], [-1 / 3 - 1 / 6]])


def test_an_episode_counts_once_and_a_state_as_often_as_it_was_visited() -> None:
    # The first trajectory comes by a twice: visits with returns 1, 1 and 0 (mean 2/3); episodes 1 and 0 (mean 0.5).
    batch = CreditBatch(group=[0, 0], turn_rewards=[[0.0, 1.0], [0.0]], outcome=[0.0, 0.0], anchors=[["a", "a"], ["a"]])
    found = estimate("gigpo", batch, gamma=1.0, deviation="none")
    assert close(found, [[0.5 + 1 / 3, 0.5 + 1 / 3], [-0.5 - 2 / 3]])


def test_equal_states_of_different_tasks_are_different_states() -> None:
    batch = CreditBatch(
        group=[0, 0, 1, 1],
        turn_rewards=[[1.0], [0.0], [5.0], [3.0]],
        outcome=[0.0] * 4,
        anchors=[["a"], ["b"], ["a"], ["b"]],
    )
    assert close(estimate("gigpo", batch, deviation="none"), [[0.5], [-0.5], [1.0], [-1.0]])


def test_two_visits_are_compared_with_each_other() -> None:
    # episodes 1, 0, 0 (mean 1/3); returns at the shared second state 1 and 0 (mean 0.5), at the first 0.5, 0 (0.25)
    batch = CreditBatch(
        group=[0, 0, 0],
        turn_rewards=[[0.0, 1.0], [0.0, 0.0], [0.0]],
        outcome=[0.0] * 3,
        anchors=[["a", "b"], ["a", "b"], ["c"]],
    )
    found = estimate("gigpo", batch, gamma=0.5, deviation="none")
    assert close(found, [[2 / 3 + 0.25, 2 / 3 + 0.5], [-1 / 3 - 0.25, -1 / 3 - 0.5], [-1 / 3]])


def test_states_that_the_world_does_not_tell_are_not_equal_to_each_other() -> None:
    untold = replace(BATCH, anchors=[[None, "b"], [None, "c"], ["a"]])
    assert close(estimate("gigpo", untold, deviation="none"), [[0.5, 0.5], [-0.5, -0.5], [0.0]])


def test_a_world_that_tells_no_state_is_refused() -> None:
    with pytest.raises(CreditError, match="TW-rule-lacks-input"):
        estimate("gigpo", replace(BATCH, anchors=[[None, None], [None, None], [None]]))


def test_what_is_not_given_is_as_in_the_paper() -> None:
    # Feng et al. 2025, arXiv 2505.10978: omega 1, gamma 0.95; advantages by the deviation of their group.
    given = estimate("gigpo", BATCH, omega=1.0, gamma=0.95, deviation="unbiased", epsilon=1e-6)
    assert estimate("gigpo", BATCH) == given


def test_without_omega_gigpo_is_grpo_on_merged_rewards() -> None:
    found = estimate("gigpo", BATCH, omega=0.0, epsilon=1e-4)
    assert close(found, estimate("grpo", BATCH, rewards="merged"))


def test_an_all_equal_group_has_no_signal_at_all() -> None:
    batch = CreditBatch(group=[0] * 3, turn_rewards=[[0.1, 0.2]] * 3, outcome=[0.3] * 3, anchors=[["a", "b"]] * 3)
    assert estimate("gigpo", batch, epsilon=0.0).tolist() == [[0.0, 0.0]] * 3


def test_rewards_per_token_count_in_the_reward_of_their_turn() -> None:
    paid = replace(BATCH, reply_lengths=[[1, 2], [1, 1], [1]], token_rewards=[[-0.1, -0.1, -0.1], [0.0, 0.0], [0.2]])
    expected = replace(BATCH, turn_rewards=[[-0.1, 0.8], [0.0, 0.0], [0.7]])
    assert close(estimate("gigpo", paid), estimate("gigpo", expected))


KITCHEN = "a kitchen with a table and a lamp, minute {}"  # 43 characters, of which one differs: 2 x 42 / 86 = 0.977


def test_states_whose_texts_are_alike_are_one_state_where_that_is_asked_for() -> None:
    named = replace(BATCH, anchors=[[KITCHEN.format(1), "b"], [KITCHEN.format(2), "c"], [KITCHEN.format(3)]])
    equal = estimate("gigpo", BATCH, deviation="none")
    assert close(estimate("gigpo", named, similarity=0.95, deviation="none"), equal)
    apart = [[0.5, 0.5], [-0.5, -0.5], [0.0]]
    assert close(estimate("gigpo", named, deviation="none"), apart)
    assert close(estimate("gigpo", named, similarity=0.98, deviation="none"), apart)
    assert estimate("gigpo", BATCH, similarity=1.0) == estimate("gigpo", BATCH)
    half = replace(BATCH, anchors=[["ab", "p"], ["ac", "q"], ["ad"]])  # 2 x 1 / 4
    assert close(estimate("gigpo", half, similarity=0.5, deviation="none"), equal)
    # difflib takes a character that is common in 200 and more for noise, unless it is told not to.
    room = "ab" * 150 + "{}"
    long = replace(BATCH, anchors=[[room.format(1), "b"], [room.format(2), "c"], [room.format(3)]])
    assert close(estimate("gigpo", long, similarity=0.95, deviation="none"), equal)
    with pytest.raises(CreditError, match=r"similarity.*TW-option-range"):
        require_options("gigpo", {"similarity": 95.0})


# Returns with gamma 0.5: 0.25 and 0.5; 0.5 and 1; 0 and 0. All come to b, the first two from a.
PASTS = CreditBatch(
    group=[0, 0, 0],
    turn_rewards=[[0.0, 0.5], [0.0, 1.0], [0.0, 0.0]],
    outcome=[0.0] * 3,
    anchors=[["a", "b"], ["a", "b"], ["c", "b"]],
)
PLAIN = {"gamma": 0.5, "deviation": "none"}


def test_hgpo_weighs_the_comparison_with_an_equal_past_more() -> None:
    # At a: 0.25, 0.5, mean 0.375. At b: 0.5, 1, 0, mean 0.5. After a, b: 0.5, 1, mean 0.75. c is seen once.
    # Weights 2 and 3; the first turn's 0 at b is left out. Second: (2 x 0.5 + 3 x 0.25) / 5 = 0.35.
    found = estimate("hgpo", PASTS, history=1, **PLAIN)
    assert close(found, [[-0.125, -0.25], [0.125, 0.35], [0.0, -0.5]])
    # alpha 0: (0.5 + 0.25) / 2; alpha 2: (4 x 0.5 + 9 x 0.25) / 13
    assert estimate("hgpo", PASTS, history=1, alpha=0.0, **PLAIN)[1][1] == pytest.approx(0.375)
    assert estimate("hgpo", PASTS, history=1, alpha=2.0, **PLAIN)[1][1] == pytest.approx(4.25 / 13)


def test_of_a_longer_past_only_the_last_states_count() -> None:
    # Both come to z at their third turn, from different states: returns 1 and 0 there, 0.5 and 0 the turn before.
    batch = CreditBatch(
        group=[0, 0],
        turn_rewards=[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
        outcome=[0.0] * 2,
        anchors=[["x", "y", "z"], ["w", "v", "z"]],
    )
    for history in (0, 1, 2):  # what is equal is the last state alone
        found = estimate("hgpo", batch, history=history, **PLAIN)
        assert close(found, [[0.0, 0.0, 0.5], [0.0, 0.0, -0.5]])
    # With the state before it equal, too: 0.25 at y, and 0.5 with both pasts.
    later = replace(batch, anchors=[["x", "y", "z"], ["w", "y", "z"]])
    assert close(estimate("hgpo", later, history=2, **PLAIN), [[0.0, 0.25, 0.5], [0.0, -0.25, -0.5]])


def test_hgpo_without_history_is_the_step_term_alone() -> None:
    step = estimate("gigpo", PASTS, omega=2.0, **PLAIN).values - estimate("gigpo", PASTS, **PLAIN).values
    assert estimate("hgpo", PASTS, history=0, **PLAIN).values == pytest.approx(step)


def test_hgpo_takes_the_episode_as_the_shortest_past() -> None:
    # Episodes 0.5, 1, 0: 0, 0.5, -0.5 with weight 1. Second: (0.5 + 2 x 0.125) / 3, (0.5 + 2 x 0.5 + 3 x 0.25) / 6.
    found = estimate("hgpo", PASTS, history=1, episode=True, **PLAIN)
    assert close(found, [[-0.125, -0.25], [0.25, 0.375], [-0.5, -0.5]])


def test_hgpo_divides_by_the_population_deviation_of_each_comparison() -> None:
    # At a and after a, b two returns differ: +-1. At b: 0.5 over sqrt(1 / 6) = 1.224745; (2 x 1.224745 + 3) / 5.
    found = estimate("hgpo", PASTS, history=1, gamma=0.5, epsilon=0.0)
    assert close(found, [[-1.0, -1.0], [1.0, (2 * math.sqrt(1.5) + 3) / 5], [0.0, -math.sqrt(1.5)]])


def test_a_past_with_a_state_that_the_world_does_not_tell_is_equal_to_none() -> None:
    untold = replace(PASTS, anchors=[[None, "b"], [None, "b"], ["c", "b"]])
    assert close(estimate("hgpo", untold, history=1, **PLAIN), [[0.0, 0.0], [0.0, 0.5], [0.0, -0.5]])
