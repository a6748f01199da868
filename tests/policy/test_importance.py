"""Importance weights for the engine's mismatch: by hand, per token and per sequence, truncated and masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from turnwise.config.optimization import ImportanceCorrection, SequenceMask
from turnwise.data.arrays import Ragged, SequenceBatch, TokenSequence
from turnwise.errors import MismatchError
from turnwise.policy.learner.importance import importance_weights

# The learner is 3, 0.6 and 0.25 times as sure as the engine of the reply tokens of the first sequence, and exactly as
# sure of the one of the second; products: 0.45 and 1.
K3 = {"over": "maximum", "of": "k3", "high": 1.0}
SEQUENCES = SequenceBatch.of(
    [
        TokenSequence((9, 3, 4, 9, 5), (-1, 0, 0, -1, 1), (0.0, -2.0, -1.0, 0.0, -1.0)),
        TokenSequence((9, 3), (-1, 0), (0.0, -0.5)),
    ]
)
LEARNER = [(0.0, -2.0 + math.log(3.0), -1.0 + math.log(0.6), 0.0, -1.0 + math.log(0.25)), (0.0, -0.5)]


@pytest.mark.parametrize(
    ("correction", "of_first", "of_second", "cut"),
    [
        (ImportanceCorrection(kind="truncate"), [0.0, 2.0, 0.6, 0.0, 0.25], [0.0, 1.0], 1 / 4),
        (ImportanceCorrection(kind="truncate", high=2.5), [0.0, 2.5, 0.6, 0.0, 0.25], [0.0, 1.0], 1 / 4),
        (ImportanceCorrection(kind="truncate", low=0.5), [0.0, 2.0, 0.6, 0.0, 0.5], [0.0, 1.0], 2 / 4),
        (ImportanceCorrection(kind="mask"), [0.0, 3.0, 0.6, 0.0, 0.0], [0.0, 1.0], 1 / 4),
        (ImportanceCorrection(kind="mask", low=0.2, high=2.0), [0.0, 0.0, 0.6, 0.0, 0.25], [0.0, 1.0], 1 / 4),
        (ImportanceCorrection(kind="mask", low=1.0, high=4.0), [0.0, 3.0, 0.0, 0.0, 0.0], [0.0, 1.0], 2 / 4),
        (ImportanceCorrection(kind="mask", low=0.5, high=1.0), [0.0, 0.0, 0.6, 0.0, 0.0], [0.0, 1.0], 2 / 4),
        (ImportanceCorrection(kind="truncate", level="sequence"), [0.0, 0.45, 0.45, 0.0, 0.45], [0.0, 1.0], 0.0),
        (ImportanceCorrection(kind="mask", level="sequence"), [0.0] * 5, [0.0, 1.0], 3 / 4),
    ],
)
def test_weights_by_hand(
    correction: ImportanceCorrection, of_first: list[float], of_second: list[float], cut: float
) -> None:
    weights = importance_weights(SEQUENCES, Ragged.of(LEARNER), correction)
    assert weights.per_token.tolist() == [pytest.approx(of_first), pytest.approx(of_second)]
    assert weights.cut_share == cut
    assert weights.maximum == pytest.approx(1.0 if correction.level == "sequence" else 3.0)
    assert weights.mean == pytest.approx((sum(of_first) + sum(of_second)) / 4)


def test_the_divergence_is_worked_by_hand_and_knows_no_bound() -> None:
    # p / mu - 1 - log (p / mu) of 3, 0.6, 0.25 and 1.
    expected = (2.0 - math.log(3.0) + (-0.4 - math.log(0.6)) + (-0.75 - math.log(0.25)) + 0.0) / 4
    for kind, level in (("truncate", "token"), ("mask", "token"), ("truncate", "sequence")):
        correction = ImportanceCorrection(kind=kind, level=level)  # type: ignore[arg-type]
        assert importance_weights(SEQUENCES, Ragged.of(LEARNER), correction).divergence == pytest.approx(expected)


@given(st.lists(st.floats(-3.0, 3.0), min_size=5, max_size=5))
def test_what_stands_at_observation_tokens_changes_no_weight(others: list[float]) -> None:
    changed = [tuple(others[place] if place in (0, 3) else value for place, value in enumerate(LEARNER[0])), LEARNER[1]]
    for level in ("token", "sequence"):
        correction = ImportanceCorrection(kind="truncate", level=level)  # type: ignore[arg-type]
        found, expected = (importance_weights(SEQUENCES, Ragged.of(rows), correction) for rows in (changed, LEARNER))
        assert found == expected


def test_a_long_sequence_that_engine_and_learner_disagree_about_has_a_weight_that_is_a_number() -> None:
    sequence = TokenSequence((9,) * 500, (-1,) + (0,) * 499, (0.0,) + (-8.0,) * 499)
    own = Ragged.of([(0.0,) + (-1.0,) * 499])
    correction = ImportanceCorrection(kind="truncate", level="sequence")
    weights = importance_weights(SequenceBatch.of([sequence]), own, correction)
    assert weights.maximum == pytest.approx(math.exp(20.0))
    assert weights.mean == 2.0


def test_truncated_weights_are_unbiased_until_they_are_cut() -> None:
    """Drawn from the engine's distribution, the weighted mean of anything is that under the learner's."""
    engine, learner, value = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([1.0, -2.0, 5.0])
    sequences = [TokenSequence((9, token), (-1, 0), (0.0, math.log(engine[token]))) for token in range(3)]
    own = [(0.0, math.log(learner[token])) for token in range(3)]
    weights = importance_weights(SequenceBatch.of(sequences), Ragged.of(own), ImportanceCorrection(kind="truncate"))
    of_reply = np.array([row[1] for row in weights.per_token])
    assert (engine * of_reply * value).sum() == pytest.approx((learner * value).sum())


def test_a_mask_that_leaves_nothing_is_an_error_and_not_a_silent_update() -> None:
    far = [tuple(value - 5.0 for value in row) for row in LEARNER]
    with pytest.raises(MismatchError, match=r"\b4\b.*0\.5.*\b5\b.*TW-engine-mismatch"):
        importance_weights(SEQUENCES, Ragged.of(far), ImportanceCorrection(kind="mask"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kind": "clip"}, "one of truncate, mask, none; found 'clip'"),
        ({"level": "turn"}, "one of token, sequence; found 'turn'"),
        ({"high": 0.5}, "high must be at least 1: a weight of 1 is no mismatch at all; found 0.5"),
        ({"kind": "mask", "low": 1.5}, "low must be at most 1: a weight of 1 is no mismatch at all; found 1.5"),
        ({"kind": "mask", "low": -0.5}, "low must be at least 0"),
        ({"kind": "none"}, "sequence_mask must be set with kind none, which corrects nothing else"),
        ({"kind": "none", "high": 2.0, "sequence_mask": K3}, "high must be left out with kind none"),
        ({"kind": "none", "over_mean": True, "sequence_mask": K3}, "over_mean must be left out with kind none"),
        ({"sequence_mask": {**K3, "low": 0.5}}, "low must be left out but for k1, which has a sign; found 0.5 with k3"),
        ({"sequence_mask": {"over": "mean", "of": "k1", "high": 0.9}}, "high must be at least 1 for k1"),
        ({"sequence_mask": {"over": "mean", "of": "k1", "high": 2.0, "low": 1.5}}, "low must be at most 1"),
        ({"sequence_mask": {"over": "median", "of": "k1", "high": 2.0}}, "over must be one of mean, sum, maximum"),
    ],
)
def test_a_correction_that_makes_no_sense_is_refused(wrong: dict[str, object], reason: str) -> None:
    assert reason in refusal(ImportanceCorrection, {"kind": "truncate", **wrong})


def of_mask(**mask: object) -> list[float]:
    """The weights of the two sequences' reply tokens with this mask alone."""
    correction = ImportanceCorrection(kind="none", sequence_mask=SequenceMask(**mask))
    return importance_weights(SEQUENCES, Ragged.of(LEARNER), correction).per_token.values[SEQUENCES.mask].tolist()


LEFT_OUT, EVERYTHING = [0.0, 0.0, 0.0, 1.0], [1.0] * 4


@pytest.mark.parametrize(
    ("over", "of", "least"),
    [
        # The first sequence's ratios are 3, 0.6, 0.25: k1 1.0986, -0.5108, -1.3863, sum -0.7985 (0.45), mean -0.2662
        ("mean", "k1", 1 / 0.7663),  # the geometric mean, 0.45^(1/3) = 0.7663
        ("sum", "k1", 1 / 0.45),
        ("maximum", "k1", 4.0),  # 0.25 is the furthest
        # k2: 0.6035, 0.1305, 0.9609;  k3: 2 - 1.0986 = 0.9014, -0.4 + 0.5108 = 0.1108, -0.75 + 1.3863 = 0.6363
        ("mean", "k2", 0.5650),
        ("sum", "k2", 1.6949),
        ("maximum", "k2", 0.9609),
        ("mean", "k3", 0.5495),
        ("sum", "k3", 1.6485),
        ("maximum", "k3", 0.9014),
    ],
)
def test_a_sequence_is_left_out_where_its_statistic_is_out_of_bounds(over: str, of: str, least: float) -> None:
    assert of_mask(over=over, of=of, high=least * 1.001) == EVERYTHING
    assert of_mask(over=over, of=of, high=least * 0.999) == LEFT_OUT


def test_a_ratio_has_two_bounds_and_the_lower_one_is_the_reciprocal_of_the_upper() -> None:
    # The geometric mean is 0.7663, the largest ratio 3.
    assert of_mask(over="mean", of="k1", high=10.0, low=0.76) == EVERYTHING
    assert of_mask(over="mean", of="k1", high=10.0, low=0.77) == LEFT_OUT
    assert of_mask(over="maximum", of="k1", high=3.1, low=0.2) == EVERYTHING
    assert of_mask(over="maximum", of="k1", high=2.9, low=0.2) == LEFT_OUT


def test_a_masked_sequence_has_no_weight_whatever_its_weights_are() -> None:
    mask = SequenceMask(over="mean", of="k1", high=1.2)
    found = importance_weights(SEQUENCES, Ragged.of(LEARNER), ImportanceCorrection(kind="truncate", sequence_mask=mask))
    assert found.per_token.values[SEQUENCES.mask].tolist() == LEFT_OUT
    assert found.cut_share == 3 / 4
    alone = Ragged.of(LEARNER[:1])
    with pytest.raises(MismatchError, match=r"\b0\b.*\b2\b.*k1.*1\.2.*TW-engine-mismatch"):
        importance_weights(SEQUENCES.select([0]), alone, ImportanceCorrection(kind="truncate", sequence_mask=mask))


def test_weights_over_their_mean_have_the_mean_one() -> None:
    # tokens: 2, 0.6, 0.25, 1 after truncation, mean 0.9625; sequences: 0.45 and 1, mean 0.725
    weights = importance_weights(SEQUENCES, Ragged.of(LEARNER), ImportanceCorrection(kind="truncate", over_mean=True))
    expected = [each / 0.9625 for each in (2.0, 0.6, 0.25, 1.0)]
    assert weights.per_token.values[SEQUENCES.mask].tolist() == pytest.approx(expected)
    assert weights.mean == pytest.approx(1.0)
    assert weights.cut_share == 1 / 4  # dividing is no cut
    mask = ImportanceCorrection(kind="mask", low=0.2, high=2.0, over_mean=True)
    masked = importance_weights(SEQUENCES, Ragged.of(LEARNER), mask)
    expected = [each / 0.4625 for each in (0.0, 0.6, 0.25, 1.0)]  # the mean counts the masked one
    assert masked.per_token.values[SEQUENCES.mask].tolist() == pytest.approx(expected)
    of_sequences = ImportanceCorrection(kind="truncate", level="sequence", over_mean=True)
    weights = importance_weights(SEQUENCES, Ragged.of(LEARNER), of_sequences)
    assert weights.per_token.values[SEQUENCES.mask].tolist() == pytest.approx([0.45 / 0.725] * 3 + [1 / 0.725])
