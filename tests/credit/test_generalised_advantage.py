"""GAE on tokens, on turns and on both, by hand."""

import math
from dataclasses import replace

import pytest
from credit_samples import WITH_CRITIC, close

from turnwise.credit import CreditBatch, estimate, value_targets
from turnwise.errors import CreditError

RAW = {"whiten": False}
# Two replies of two tokens; no turn is paid anything but the outcome.
ZERO_TURNS = CreditBatch(
    group=[0], turn_rewards=[[0.0, 0.0]], outcome=[1.0], reply_lengths=[[2, 2]], values=[[0.5, 0.4, 0.3, 0.2]]
)


def test_gae_steps_from_reply_token_to_reply_token() -> None:
    # rewards 0, 0.3, 1; values 0.5, 0.4, 0.2; gamma 0.9, lambda 0.8, product 0.72
    # token 3: 1 - 0.2                         = 0.8
    # token 2: 0.3 + 0.9 x 0.2 - 0.4 = 0.08,   + 0.72 x 0.8   = 0.656
    # token 1: 0 + 0.9 x 0.4 - 0.5 = -0.14,    + 0.72 x 0.656 = 0.33232
    assert close(estimate("gae", WITH_CRITIC, gamma=0.9, lam=0.8, **RAW), [[0.33232, 0.656, 0.8]])
    assert close(value_targets("gae", WITH_CRITIC, gamma=0.9, lam=0.8), [[0.83232, 1.056, 1.0]])


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ("turn", [1.3 - 0.5, 1.3 - 0.4, 1.0 - 0.2]),  # MT-PPO
        ("merged", [1.3 - 0.5, 1.3 - 0.4, 1.3 - 0.2]),  # PPO-MR
        ("outcome", [1.0 - 0.5, 1.0 - 0.4, 1.0 - 0.2]),  # PPO-OR
    ],
)
def test_rewards_stand_where_they_are_placed(rewards: str, expected: list[float]) -> None:
    assert close(estimate("gae", WITH_CRITIC, rewards=rewards, **RAW), [expected])


def test_a_trajectory_that_was_cut_off_goes_on_from_the_value_at_the_cut() -> None:
    # rewards 0, 0.3, 0; after the last token 0.6
    # token 3: 0.9 x 0.6 - 0.2 = 0.34;  token 2: 0.08 + 0.72 x 0.34 = 0.3248;  token 1: -0.14 + 0.72 x 0.3248
    cut = replace(WITH_CRITIC, outcome=[0.0], truncated=[True], bootstrap=[0.6])
    assert close(estimate("gae", cut, gamma=0.9, lam=0.8, **RAW), [[0.093856, 0.3248, 0.34]])
    # turns: 0.9 x 0.6 - 0.2 = 0.34;  0.3 + 0.9 x 0.2 - 0.5 + 0.72 x 0.34
    assert close(estimate("turn-gae", cut, gamma=0.9, lam=0.8, **RAW), [[0.2248, 0.34]])
    # outside, values 0.4 and 0.2: 0.34;  0.3 + 0.9 x 0.2 - 0.4 + 0.72 x 0.34 = 0.3248
    # inside: 0.4 - 0.5 + 0.8 x 0.3248
    found = estimate("bi-level-gae", cut, gamma=1.0, gamma_turn=0.9, lam=0.8, **RAW)
    assert close(found, [[0.15984, 0.3248, 0.34]])


def test_the_value_at_the_cut_is_not_read_where_the_trajectory_ended() -> None:
    ended = replace(WITH_CRITIC, truncated=[False], bootstrap=[100.0])
    for name in ("gae", "turn-gae", "bi-level-gae"):
        assert estimate(name, ended, **RAW) == estimate(name, WITH_CRITIC, **RAW)


@pytest.mark.parametrize("name", ["gae", "turn-gae", "bi-level-gae"])
def test_a_cut_without_a_value_is_refused(name: str) -> None:
    with pytest.raises(CreditError, match=r"\b0\b.*TW-rule-lacks-input"):
        estimate(name, replace(WITH_CRITIC, truncated=[True]))


@pytest.mark.parametrize("name", ["gae", "turn-gae", "bi-level-gae"])
def test_a_cut_may_count_as_an_end_as_in_the_papers(name: str) -> None:
    cut = replace(WITH_CRITIC, truncated=[True], bootstrap=[0.6])
    assert estimate(name, cut, bootstrap=False, **RAW) == estimate(name, WITH_CRITIC, **RAW)
    assert value_targets(name, cut, bootstrap=False) == value_targets(name, WITH_CRITIC)
    assert estimate(name, cut, **RAW) != estimate(name, WITH_CRITIC, **RAW)


def test_turn_gae_steps_from_turn_to_turn() -> None:
    # values at the first reply tokens: 0.5, 0.2.  turn 2: 1 - 0.2 = 0.8;  turn 1: 0.3 + 0.9 x 0.2 - 0.5 + 0.72 x 0.8
    assert close(estimate("turn-gae", WITH_CRITIC, gamma=0.9, lam=0.8, **RAW), [[0.556, 0.8]])
    assert close(value_targets("turn-gae", WITH_CRITIC, gamma=0.9, lam=0.8), [[1.056, 1.056, 1.0]])


def test_a_turn_with_reward_0_is_still_a_turn_of_bi_level_gae() -> None:
    # outside, values at the last reply tokens 0.4, 0.2, gamma_turn 0.95, lambda 1:
    #   turn 2: 1 - 0.2 = 0.8;  turn 1: 0.95 x 0.2 - 0.4 + 0.95 x 0.8 = 0.55
    # inside turn 1, paid 0.55 + 0.4 at its end: 0.55, and before it 0.4 - 0.5 + 0.55 = 0.45
    # inside turn 2, paid 0.8 + 0.2 at its end: 0.8, and before it 0.2 - 0.3 + 0.8 = 0.7
    # (were turn 1 no turn, its tokens would get 0.6 and 0.5, with no discount for the turn)
    assert close(estimate("bi-level-gae", ZERO_TURNS, **RAW), [[0.45, 0.55, 0.7, 0.8]])
    assert close(value_targets("bi-level-gae", ZERO_TURNS), [[0.95, 0.95, 1.0, 1.0]])


def test_the_trace_of_bi_level_gae_acts_on_both_levels() -> None:
    # lambda 0.5. outside: 0.8;  0.95 x 0.2 - 0.4 + 0.475 x 0.8 = 0.17;  inside: -0.1 + 0.5 x 0.17;  -0.1 + 0.5 x 0.8
    assert close(estimate("bi-level-gae", ZERO_TURNS, lam=0.5, **RAW), [[-0.015, 0.17, 0.3, 0.8]])


def test_the_gamma_of_tokens_acts_inside_turns_only() -> None:
    # gamma 0.5, gamma_turn 1. outside: 0.8;  0.2 - 0.4 + 0.8 = 0.6
    # inside: 0.5 x 0.4 - 0.5 + 0.5 x 0.6;  0.5 x 0.2 - 0.3 + 0.5 x 0.8
    found = estimate("bi-level-gae", ZERO_TURNS, gamma=0.5, gamma_turn=1.0, **RAW)
    assert close(found, [[0.0, 0.6, 0.2, 0.8]])


def test_a_trajectory_without_any_reward_is_credited_too() -> None:
    nothing = replace(ZERO_TURNS, outcome=[0.0])
    for name in ("gae", "bi-level-gae"):
        assert close(estimate(name, nothing, **RAW), [[-0.5, -0.4, -0.3, -0.2]])


def test_rewards_per_token_stand_on_their_tokens_or_at_the_end_of_their_turn() -> None:
    paid = replace(WITH_CRITIC, token_rewards=[[-0.1, 0.0, -0.2]])
    # tokens, gamma and lambda 1: 1.3 - 0.3 - 0.5, 1.3 - 0.2 - 0.4, 1 - 0.2 - 0.2
    assert close(estimate("gae", paid, **RAW), [[0.5, 0.7, 0.6]])
    # turns paid 0.2 and 0.8: 1.0 - 0.5, 0.8 - 0.2
    assert close(estimate("turn-gae", paid, **RAW), [[0.5, 0.6]])
    # outside with values 0.4, 0.2: 0.8 - 0.2;  0.2 + 0.2 - 0.4 + 0.6;  inside: 0.4 - 0.5 + 0.6
    assert close(estimate("bi-level-gae", paid, gamma_turn=1.0, **RAW), [[0.5, 0.6, 0.6]])


def test_advantages_are_whitened_as_ppo_does_and_targets_are_not() -> None:
    # raw 0.8, 0.9, 0.8: mean 5/6, squares 1/900 + 4/900 + 1/900 = 6/900, over 2: deviation sqrt(3)/30
    low, high = (0.8 - 2.5 / 3) * 30 / math.sqrt(3), (0.9 - 2.5 / 3) * 30 / math.sqrt(3)
    assert close(estimate("gae", WITH_CRITIC), [[low, high, low]], tolerance=1e-6)
    assert low == pytest.approx(-0.57735, abs=1e-5)
    assert value_targets("gae", WITH_CRITIC, whiten=True) == value_targets("gae", WITH_CRITIC, whiten=False)


def test_turn_gae_is_whitened_over_turns() -> None:
    # raw 0.8 (1.3 - 0.5) and 0.6 (outcome 0.8 - 0.2): +-0.1, deviation sqrt(0.02)
    batch = replace(WITH_CRITIC, turn_rewards=[[0.5, 0.0]], outcome=[0.8])
    assert close(estimate("turn-gae", batch), [[math.sqrt(0.5), -math.sqrt(0.5)]], tolerance=1e-6)


def test_targets_of_turns_that_are_not_trained_are_there_too() -> None:
    batch = replace(WITH_CRITIC, trained=[[False, True]])
    assert value_targets("gae", batch) == value_targets("gae", WITH_CRITIC)
    assert estimate("gae", batch, **RAW)[0][:2].tolist() == [0.0, 0.0]


def test_lambda_by_length_is_1_minus_1_over_alpha_l() -> None:
    # 3 reply tokens, alpha 0.5: 1 - 1 / 1.5 = 1 / 3, and 0.3 with gamma 0.9
    # token 3: 0.8;  token 2: 0.08 + 0.3 x 0.8 = 0.32;  token 1: -0.14 + 0.3 x 0.32 = -0.044
    name = "length-adaptive-gae"
    assert close(estimate(name, WITH_CRITIC, gamma=0.9, alpha=0.5, **RAW), [[-0.044, 0.32, 0.8]])
    assert close(estimate(name, WITH_CRITIC, gamma=0.9, **RAW), [[-0.14, 0.08, 0.8]])  # 0.05 x 3 < 1: lambda 0
    assert estimate(name, WITH_CRITIC, gamma=0.9, alpha=None, **RAW) == estimate("gae", WITH_CRITIC, gamma=0.9, **RAW)
    # The critic's targets have lambda 1: 1;  0.08 + 0.9 x 0.8 + 0.4 = 1.2;  -0.14 + 0.9 x 0.8 + 0.5 = 1.08
    assert close(value_targets(name, WITH_CRITIC, gamma=0.9, alpha=0.5), [[1.08, 1.2, 1.0]])


def test_each_trajectory_has_the_lambda_of_its_own_length() -> None:
    both = CreditBatch(
        group=[0, 0],
        turn_rewards=[[0.0, 0.0], [0.0]],
        outcome=[1.0, 1.0],
        reply_lengths=[[2, 2], [3]],
        values=[[0.5, 0.4, 0.3, 0.2], [0.5, 0.4, 0.2]],
    )
    found = estimate("length-adaptive-gae", both, alpha=0.5, **RAW)
    assert close([found[0]], estimate("gae", ZERO_TURNS, lam=0.5, **RAW))
    alone = replace(WITH_CRITIC, turn_rewards=[[0.0]], reply_lengths=[[3]])
    assert close([found[1]], estimate("gae", alone, lam=1 / 3, **RAW))


def test_cross_level_gae_mixes_the_tokens_advantage_with_its_turns() -> None:
    # turns: 1 - 0.3 = 0.7;  0.5 x 0.3 - 0.5 + 0.25 x 0.7 = -0.175
    # token 4: 1 - 0.2 = 0.8;  token 3: 0.9 x 0.2 - 0.3 + 0.72 x 0.8 = 0.456
    # token 2, after which comes the turn of 0.7: 0.9 x 0.3 - 0.4 + 0.72 x 0.7 = 0.374
    # token 1: 0.9 x 0.4 - 0.5 + 0.72 x 0.374 = 0.12928
    options = {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.5, "lam_turn": 0.5, "weight": 0.25}
    found = estimate("cross-level-gae", ZERO_TURNS, **options, **RAW)
    own, of_turn = (0.12928, 0.374, 0.456, 0.8), (-0.175, -0.175, 0.7, 0.7)
    assert close(found, [[0.75 * token + 0.25 * turn for token, turn in zip(own, of_turn, strict=True)]])
    assert close(value_targets("cross-level-gae", ZERO_TURNS, **options), [[0.62928, 0.774, 0.756, 1.0]])
    # A cut goes on from the value there, on both levels: turns 0.5 x 0.6 - 0.3 = 0; token 4: 0.9 x 0.6 - 0.2 = 0.34
    cut = replace(ZERO_TURNS, outcome=[0.0], truncated=[True], bootstrap=[0.6])
    assert estimate("cross-level-gae", cut, **options, **RAW)[0][3] == pytest.approx(0.75 * 0.34)
