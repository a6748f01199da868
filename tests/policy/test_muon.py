"""Muon: what it makes of a matrix, the steps that it takes, and which parameters are AdamW's."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from policy_samples import two_turn_sequences

from turnwise.errors import NotFiniteError
from turnwise.policy.learner.learner import Learner
from turnwise.policy.muon import MuonAndAdamW, orthogonal

MakePolicy = Callable[..., Path]


def a_matrix(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def taken(optimizer: MuonAndAdamW, learning_rate: float, weight_decay: float = 0.0) -> float:
    return optimizer.step(
        learning_rate=learning_rate, maximum_gradient_norm=1e9, betas=(0.9, 0.999), weight_decay=weight_decay
    )


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000))
def test_the_singular_values_alone_change_each_by_the_same_polynomial(rows: int, columns: int, seed: int) -> None:
    matrix = a_matrix(rows, columns, seed)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    torch.testing.assert_close(orthogonal(matrix), left @ values.diag() @ right, rtol=1e-6, atol=1e-8)


def test_a_matrix_becomes_nearly_orthogonal_whatever_its_scale() -> None:
    for scale in (1e-4, 1.0, 1e4):
        values = torch.linalg.svdvals(orthogonal(scale * a_matrix(32, 128)))
        assert values.min() > 0.65 and values.max() < 1.25
    assert orthogonal(torch.zeros(3, 4)).eq(0.0).all()


def test_steps_are_those_worked_by_hand() -> None:
    """Of one number the orthogonal matrix is p(p(p(p(p(1))))) times its sign, with p(x) = a x + b x^3 + c x^5."""
    size = 1.0
    for _ in range(5):
        size = 3.4445 * size - 4.7750 * size**3 + 2.0315 * size**5
    weight = torch.nn.Parameter(torch.tensor([[2.0]], dtype=torch.float64))
    optimizer = MuonAndAdamW({"weight": weight}, {})
    weight.grad = torch.tensor([[3.0]], dtype=torch.float64)
    assert taken(optimizer, 0.1, weight_decay=0.5) == 3.0
    first = 2.0 * (1 - 0.1 * 0.5) - 0.1 * 0.2 * size
    assert weight.item() == pytest.approx(first, rel=1e-9)
    # M = 0.95 * 0.15 + 0.05 * -0.2 = 0.1325, and N = 0.95 * 0.1325 + 0.05 * -0.2 > 0: the old direction is kept.
    weight.grad = torch.tensor([[-0.2]], dtype=torch.float64)
    taken(optimizer, 0.1)
    assert weight.item() == pytest.approx(first - 0.1 * 0.2 * size, rel=1e-9)


def test_a_step_is_as_large_as_one_of_adamw() -> None:
    weight = torch.nn.Parameter(torch.zeros(48, 160, dtype=torch.float64))
    optimizer = MuonAndAdamW({"weight": weight}, {})
    weight.grad = a_matrix(48, 160)
    taken(optimizer, 0.1)
    # 48 singular values near 1 over 160 columns: the root of the mean square of U V' is 1 / sqrt(160).
    assert 0.7 < weight.square().mean().sqrt().item() / (0.1 * 0.2) < 1.2


def test_a_gradient_that_is_not_finite_is_refused_before_any_step() -> None:
    matrix, other = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    optimizer = MuonAndAdamW({"matrix": matrix}, {"other": other})
    matrix.grad, other.grad = torch.full((2, 2), math.inf), torch.ones(2)
    with pytest.raises(NotFiniteError, match="TW-not-finite"):
        taken(optimizer, 0.1)
    assert matrix.eq(1.0).all() and other.eq(1.0).all()
    assert matrix.grad is None and other.grad is None


def test_embeddings_and_norms_take_adamws_steps_and_the_layers_matrices_do_not(make_policy: MakePolicy) -> None:
    sides = [Learner(make_policy(0), threads=1) for _ in range(2)]
    for learner, optimizer in zip(sides, ("adamw", "muon"), strict=True):
        learner.supervised_step(
            two_turn_sequences(),
            learning_rate=1e-2,
            micro_batch_tokens=100,
            optimizer=optimizer,  # type: ignore[arg-type]
        )
    by_adamw, by_muon = (learner.model.state_dict() for learner in sides)
    differing = {name for name in by_adamw if not torch.allclose(by_adamw[name], by_muon[name], atol=1e-7)}
    assert differing == {name for name in by_adamw if name.endswith("_proj.weight")}


def test_the_loss_falls_in_the_same_way_each_time_and_updates_begin_with_a_fresh_optimizer(
    make_policy: MakePolicy,
) -> None:
    found = []
    for _ in range(2):
        learner = Learner(make_policy(0), threads=1)
        losses = [
            learner.supervised_step(two_turn_sequences(), learning_rate=1e-2, micro_batch_tokens=100, optimizer="muon")[
                "loss"
            ]
            for _ in range(10)
        ]
        found.append(losses)
        assert learner.steps == 0, "of AdamW"
    assert found[0] == found[1]
    assert found[0][-1] < 0.5 * found[0][0]
