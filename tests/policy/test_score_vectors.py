"""Score vectors: gradients of log-probabilities, turn by turn, and what a sketch keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from policy_samples import two_turn_sequences
from transformers import AutoModelForCausalLM

from turnwise.data.trajectory import TokenSequence
from turnwise.policy.score_vectors import CountSketch, score_vectors

TEMPERATURE, DIMENSIONS, SEED = 0.7, 512, 3


def gradients_in_float64(policy: Path, sequence: TokenSequence, weights: list[float]) -> dict[str, torch.Tensor]:
    """Of the weighted log-probabilities of a sequence's tokens, by a loop over logits: nothing of ours but the data."""
    model = AutoModelForCausalLM.from_pretrained(str(policy), dtype=torch.float64).eval()
    logits = model(input_ids=torch.tensor([sequence.tokens])).logits[0] / TEMPERATURE
    total = torch.zeros((), dtype=torch.float64)
    for place, (token, turn) in enumerate(zip(sequence.tokens, sequence.turn_of_token, strict=True)):
        if turn >= 0:
            total = total + weights[turn] * logits[place - 1].log_softmax(dim=-1)[token]
    total.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def of(policy: Path, sequences: list[TokenSequence], **changes: int) -> np.ndarray:
    options = {"dimensions": DIMENSIONS, "seed": SEED, "threads": 1, **changes}
    return score_vectors(policy, sequences, temperature=TEMPERATURE, **options)


def test_any_policy_gradient_is_a_sum_of_score_vectors(make_policy: Callable[..., Path]) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()[:3]
    advantages = [[1.5, -0.5], [0.0, 2.0], [-1.0, -1.0]]
    vectors = of(policy, sequences)
    assert vectors.shape == (6, DIMENSIONS)
    expected = np.zeros(DIMENSIONS)
    for sequence, of_turns in zip(sequences, advantages, strict=True):
        gradients = gradients_in_float64(policy, sequence, of_turns)
        expected += CountSketch(gradients, DIMENSIONS, SEED)(list(gradients.values())).numpy()
    found = np.array([value for row in advantages for value in row]) @ vectors
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)


def test_turns_that_are_not_trained_have_no_score_vector(make_policy: Callable[..., Path]) -> None:
    policy, (sequence, *_) = make_policy(0), two_turn_sequences()
    second = TokenSequence(
        sequence.tokens,
        tuple(turn if turn == 1 else -1 for turn in sequence.turn_of_token),
        sequence.log_probabilities,
    )
    alone, both = of(policy, [second]), of(policy, [sequence])
    assert (len(alone), len(both)) == (1, 2)
    assert np.allclose(alone[0], both[1], atol=1e-4)


def test_the_same_seed_gives_the_same_sketch_and_another_seed_another(make_policy: Callable[..., Path]) -> None:
    policy, sequences = make_policy(0), two_turn_sequences()[:1]
    assert np.array_equal(of(policy, sequences), of(policy, sequences))
    assert not np.array_equal(of(policy, sequences), of(policy, sequences, seed=SEED + 1))


def test_progress_is_told_sequence_by_sequence(make_policy: Callable[..., Path]) -> None:
    told: list[tuple[int, int]] = []
    score_vectors(
        make_policy(0),
        two_turn_sequences()[:3],
        temperature=1.0,
        dimensions=8,
        seed=0,
        threads=1,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_sketch_keeps_inner_products_on_average() -> None:
    # |x|^2 = |y|^2 = 1000, <x, y> = 600: with 64 numbers the deviation is sqrt((10^6 + 600^2) / 64) = 146.
    x = {"a": torch.ones(600), "b": torch.ones(20, 20)}
    y = {"a": torch.ones(600), "b": torch.tensor([1.0, -1.0]).repeat(200).view(20, 20)}
    found = []
    for seed in range(400):
        sketch = CountSketch(x, 64, seed)
        found.append(float(sketch(list(x.values())) @ sketch(list(y.values()))))
    assert np.mean(found) == pytest.approx(600, abs=4 * 146 / 20)
    assert np.std(found) == pytest.approx(146, rel=0.2)
