"""GDPO, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import close

from turnwise.config.schema import RewardSection
from turnwise.credit import CreditBatch, estimate
from turnwise.credit.requirements import CreditInputs, require_credit
from turnwise.errors import ConfigurationError, CreditError
from turnwise.experiment import Credit

# Two groups of two; the rewards of the second are all alike.
BATCH = CreditBatch(
    group=[0, 0, 1, 1],
    turn_rewards=[[0.0, 0.0], [0.0], [0.0], [0.0]],
    outcome=[0.0] * 4,
    named_rewards=[[1.0, 0.0], [0.0, 10.0], [1.0, 3.0], [1.0, 3.0]],
    reward_weights=[[1.0, 0.5]] * 4,
)


def test_each_reward_is_normalised_in_its_group_and_their_sum_over_the_batch() -> None:
    # Of two that differ, norm is +-sqrt(1/2): S = (1 - 0.5) sqrt(1/2) = 0.353553, its negative, 0, 0.
    # deviation(S) = sqrt(2 x 0.125 / 3) = 0.288675: A = 0.353553 / 0.288675 = 1.224745 = sqrt(1.5)
    found = estimate("gdpo", BATCH, epsilon=0.0)
    assert close(found, [[math.sqrt(1.5)] * 2, [-math.sqrt(1.5)], [0.0], [0.0]])


def test_epsilon_is_added_to_both_deviations() -> None:
    normalised = 0.5 / (math.sqrt(0.5) + 0.1), 5.0 / (math.sqrt(50.0) + 0.1)
    total = normalised[0] - 0.5 * normalised[1]
    expected = total / (math.sqrt(2 * total**2 / 3) + 0.1)
    assert close(estimate("gdpo", BATCH, epsilon=0.1), [[expected] * 2, [-expected], [0.0], [0.0]])


def test_the_scale_of_a_reward_does_not_matter_and_its_weight_does() -> None:
    scaled = replace(BATCH, named_rewards=[[row[0], 100.0 * row[1]] for row in BATCH.named_rewards or ()])
    assert close(estimate("gdpo", scaled, epsilon=0.0), estimate("gdpo", BATCH, epsilon=0.0))
    even = replace(BATCH, reward_weights=[[1.0, 1.0]] * 4)
    assert estimate("gdpo", even, epsilon=0.0).tolist() == [[0.0, 0.0], [0.0], [0.0], [0.0]]
    alone = replace(BATCH, reward_weights=[[0.0, 1.0]] * 4)
    assert close(estimate("gdpo", alone, epsilon=0.0), [[-math.sqrt(1.5)] * 2, [math.sqrt(1.5)], [0.0], [0.0]])


def test_what_a_constant_adds_to_a_reward_is_not_seen() -> None:
    added = replace(BATCH, named_rewards=[[row[0] + 3.0, row[1] - 2.0] for row in BATCH.named_rewards or ()])
    assert close(estimate("gdpo", added), estimate("gdpo", BATCH))


def test_rewards_per_token_have_no_place() -> None:
    with pytest.raises(CreditError, match="TW-no-token-rewards"):
        estimate("gdpo", replace(BATCH, reply_lengths=[[1, 1], [1], [1], [1]], token_rewards=[[0.0] * 2, *[[0.0]] * 3]))
    inputs = CreditInputs("corridor", True, 2, 2, False, token_rewards=True)
    with pytest.raises(ConfigurationError, match=r"credit\.estimator.*TW-no-token-rewards"):
        require_credit(Credit(estimator="gdpo", options={}), inputs)


def test_a_batch_without_names_is_refused() -> None:
    with pytest.raises(CreditError, match=r"'gdpo'.*named_rewards.*TW-rule-lacks-input"):
        estimate("gdpo", replace(BATCH, named_rewards=None, reward_weights=None))


def test_a_batch_of_trajectories_has_its_named_rewards_by_level() -> None:
    from turnwise.data.trajectory import Ending, Trajectory, Turn, trajectory_arrays
    from turnwise.world import Task

    def turn(attempt: int, **rewards: float) -> Turn:
        return Turn("", (1,), "", (1,), (-1.0,), rewards=rewards, attempt=attempt)

    sections = {
        "call": RewardSection(level="turn", weight=0.5),
        "success": RewardSection(level="outcome", weight=2.0),
        "absent": RewardSection(level="turn", weight=1.0),
    }
    turns = (turn(0, call=1.0, success=1.0), turn(1, call=2.0, success=3.0))
    tried_twice = Trajectory(Task("hill", "a", "test", 0), 0, 0, turns, Ending.FAILURE, "", (Ending.FAILURE,))
    batch = CreditBatch.of(trajectory_arrays([tried_twice]), sections)
    assert batch.named_rewards is not None and batch.reward_weights is not None
    assert batch.named_rewards.tolist() == [[3.0, 3.0, 0.0]]  # of both attempts, of the last one, of none
    assert batch.reward_weights.tolist() == [[0.5, 2.0, 1.0]]
    assert batch.outcome == [6.0]
