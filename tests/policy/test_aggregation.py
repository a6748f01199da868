"""What each reply token weighs: by hand, and what the weights sum to."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.policy.learner.update import Aggregation, token_weights

# Three sequences of 2, 6 and 4 reply tokens; the first two are of prompt 7, the third of prompt 9.
REPLY_TOKENS, GROUPS = [2, 6, 4], [7, 7, 9]


def test_token_mean_by_hand() -> None:
    assert token_weights("token-mean", REPLY_TOKENS) == [1 / 12] * 3


def test_sequence_mean_by_hand() -> None:
    # 1/3 for each sequence, over its tokens: 1/6, 1/18, 1/12
    assert token_weights("sequence-mean", REPLY_TOKENS) == pytest.approx([1 / 6, 1 / 18, 1 / 12])


def test_a_sum_over_a_constant_by_hand() -> None:
    # 3 sequences x 10 tokens
    assert token_weights("constant", REPLY_TOKENS, constant=10.0) == pytest.approx([1 / 30] * 3)


def test_prompt_mean_by_hand() -> None:
    # 1/2 for each prompt; prompt 7 has 8 tokens, prompt 9 has 4: 1/16, 1/16, 1/8
    assert token_weights("prompt-mean", REPLY_TOKENS, groups=GROUPS) == pytest.approx([1 / 16, 1 / 16, 1 / 8])


def test_sums_by_hand() -> None:
    # over all tokens; over each sequence's, and 1/3 for each sequence
    assert token_weights("token-sum", REPLY_TOKENS) == [1.0] * 3
    assert token_weights("sequence-sum", REPLY_TOKENS) == token_weights("constant", REPLY_TOKENS, constant=1.0)
    assert token_weights("sequence-sum", REPLY_TOKENS) == pytest.approx([1 / 3] * 3)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 4)), min_size=1, max_size=20))
def test_means_weigh_one_in_all_and_each_unit_alike(sequences: list[tuple[int, int]]) -> None:
    reply_tokens, groups = [tokens for tokens, _ in sequences], [group for _, group in sequences]
    for aggregation in ("token-mean", "sequence-mean", "prompt-mean"):
        weights = token_weights(aggregation, reply_tokens, groups=groups)
        shares = [weight * tokens for weight, tokens in zip(weights, reply_tokens, strict=True)]
        assert sum(shares) == pytest.approx(1.0)
        if aggregation == "sequence-mean":
            assert shares == pytest.approx([1 / len(shares)] * len(shares))
        if aggregation == "prompt-mean":
            of_prompt = [
                sum(share for share, of in zip(shares, groups, strict=True) if of == group)
                for group in sorted(set(groups))
            ]
            assert of_prompt == pytest.approx([1 / len(of_prompt)] * len(of_prompt))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.floats(1.0, 1000.0))
def test_a_constant_leaves_the_length_of_a_reply_out_of_a_tokens_weight(lengths: list[int], constant: float) -> None:
    assert set(token_weights("constant", lengths, constant=constant)) == {1 / (len(lengths) * constant)}


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_a_sequence_without_a_reply_is_refused(aggregation: Aggregation) -> None:
    with pytest.raises(ValueError, match="must have a reply token"):
        token_weights(aggregation, [2, 0], groups=[0, 0], constant=1.0)


def test_what_is_lacking_is_named() -> None:
    with pytest.raises(ValueError, match="constant, in tokens"):
        token_weights("constant", REPLY_TOKENS)
    with pytest.raises(ValueError, match="group of every sample"):
        token_weights("prompt-mean", REPLY_TOKENS)
