"""Segments of a trajectory are sequences of their own, and count as the one trajectory that they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from turnwise.data.arrays import TokenSequence
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings, mini_batches

SETTINGS = UpdateSettings(learning_rate=1e-3, temperature=1.0, micro_batch_tokens=200, maximum_mismatch=10.0)


def sequence(begin: int, turns: dict[int, int]) -> TokenSequence:
    """Two observation tokens before each turn, whose reply has as many tokens as the dictionary says."""
    turn_of_token = [place for turn, length in turns.items() for place in (-1, -1, *[turn] * length)]
    tokens = tuple(range(begin, begin + len(turn_of_token)))
    return TokenSequence(tokens, tuple(turn_of_token), tuple(-5.5 if turn >= 0 else 0.0 for turn in turn_of_token))


# A trajectory of two segments with 2 + 3 and 1 reply tokens, and one of a single segment with 3.
SEGMENTS = [sequence(10, {0: 2, 1: 3}), sequence(30, {2: 1}), sequence(50, {0: 3})]
ADVANTAGES = [(1.0, -2.0, 0.5), (1.0, -2.0, 0.5), (-1.0,)]


def batch() -> UpdateBatch:
    return UpdateBatch.from_turns(SEGMENTS, ADVANTAGES, groups=[7, 7, 8], samples=[0, 0, 1])


def test_advantages_of_turns_reach_the_segment_that_the_turn_is_in() -> None:
    assert batch().advantages.tolist() == [
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, -2.0, -2.0, -2.0],
        [0.0, 0.0, 0.5],
        [0.0, 0.0, -1.0, -1.0, -1.0],
    ]


@pytest.mark.parametrize(
    ("aggregation", "weights"),
    [
        ("token-mean", [1 / 9, 1 / 9, 1 / 9]),
        ("sequence-mean", [1 / 12, 1 / 12, 1 / 6]),  # two trajectories, of 6 and of 3 reply tokens
        ("constant", [1 / 20, 1 / 20, 1 / 20]),
        ("prompt-mean", [1 / 12, 1 / 12, 1 / 6]),
    ],
)
def test_a_trajectory_of_two_segments_counts_as_one(aggregation: str, weights: list[float]) -> None:
    constant = 10.0 if aggregation == "constant" else None
    settings = SETTINGS.changed(aggregation=aggregation, aggregation_constant=constant)
    assert batch().token_weights(settings) == pytest.approx(weights)


def test_turn_by_turn_each_reply_is_a_sample_of_its_own() -> None:
    turns = batch().turn_by_turn()
    settings = SETTINGS.changed(aggregation="sequence-mean")
    assert turns.sequences.reply_counts.tolist() == [2, 3, 1, 3]
    assert turns.token_weights(settings) == pytest.approx([1 / 8, 1 / 12, 1 / 4, 1 / 12])


def test_segments_of_a_trajectory_are_dealt_into_one_mini_batch() -> None:
    for seed in range(4):
        parts = list(mini_batches(batch(), SETTINGS.changed(mini_batches=2, seed=seed)))
        assert sorted([len(part.sequences) for part in parts]) == [1, 2]


def test_a_segment_without_a_trained_reply_is_context_that_nobody_needs() -> None:
    frozen = dataclasses.replace(SEGMENTS[1], turn_of_token=(-1, -1, -1))
    part = UpdateBatch.from_turns([SEGMENTS[0], frozen], ADVANTAGES[:2], samples=[0, 0])
    (dealt,) = mini_batches(part, SETTINGS)
    assert list(dealt.sequences) == [SEGMENTS[0]]
    assert part.token_weights(SETTINGS).tolist() == [1 / 5, 0.0]


def test_an_update_on_segments_is_the_sum_that_their_weights_say(make_policy: Callable[..., Path]) -> None:
    settings = SETTINGS.changed(aggregation="sequence-mean", maximum_gradient_norm=1e9)
    learner, plain = (Learner(make_policy(0), threads=1) for _ in range(2))
    norm = learner.update(batch(), settings)["gradient_norm"]
    # The same gradient by token-mean, with the weights of sequence-mean put into the advantages.
    scale = [9 * weight for weight in batch().token_weights(settings)]
    rescaled = [[factor * value for value in row] for factor, row in zip(scale, ADVANTAGES, strict=True)]
    again = plain.update(UpdateBatch.from_turns(SEGMENTS, rescaled), settings.changed(aggregation="token-mean"))
    assert again["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    for one, other in zip(learner.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_samples_that_do_not_match_the_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="samples must have one number per sequence"):
        UpdateBatch.from_turns(SEGMENTS, ADVANTAGES, samples=[0, 0])
