"""The clipped loss, by hand."""

import math

import pytest
import torch

from turnwise.policy.losses import clipped_policy_loss


def test_the_clipped_loss_is_that_of_the_equation() -> None:
    # Behaviour log-probabilities are log 0.5; the policy's are log of 0.5 x ratio. Clips: low 0.2, high 0.3.
    ratios = [1.1, 1.5, 0.9, 0.5, 1.5, 0.5]
    advantages = [2.0, 2.0, -1.0, -1.0, -1.0, 2.0]
    # 1.1 x 2 = 2.2 (inside)            -> -2.2
    # min(1.5 x 2, 1.3 x 2) = 2.6       -> -2.6, clipped above
    # 0.9 x -1 (inside)                 ->  0.9
    # min(0.5 x -1, 0.8 x -1) = -0.8    ->  0.8, clipped below
    # min(1.5 x -1, 1.3 x -1) = -1.5    ->  1.5: a worse action made likelier is never clipped
    # min(0.5 x 2, 0.8 x 2) = 1.0       -> -1.0: a better action made rarer is never clipped
    log_probabilities = torch.tensor([math.log(0.5 * ratio) for ratio in ratios], requires_grad=True)
    result = clipped_policy_loss(
        log_probabilities,
        torch.full((6,), math.log(0.5)),
        torch.tensor(advantages),
        torch.ones(6, dtype=torch.bool),
        clip_low=0.2,
        clip_high=0.3,
    )
    assert result.loss.tolist() == pytest.approx([-2.2, -2.6, 0.9, 0.8, 1.5, -1.0], rel=1e-6)
    assert result.clipped_low.tolist() == [False, False, False, True, False, False]
    assert result.clipped_high.tolist() == [False, True, False, False, False, False]
    # KL estimate r - 1 - log r at r = 1.5: 0.5 - 0.405465 = 0.094535
    assert result.divergence[1].item() == pytest.approx(0.094535, abs=1e-5)
    result.loss.sum().backward()
    # d(-r A)/d(log pi) = -r A where nothing is clipped, else 0.
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == pytest.approx([-2.2, 0.0, 0.9, 0.0, 1.5, -1.0], rel=1e-6)


def test_masked_tokens_have_no_loss_no_gradient_and_are_never_clipped() -> None:
    log_probabilities = torch.tensor([-1.0, 0.0], requires_grad=True)
    result = clipped_policy_loss(
        log_probabilities,
        torch.tensor([-1.0, -90.0]),
        torch.tensor([1.0, 1.0]),
        torch.tensor([1, 0]),
        clip_low=0.2,
        clip_high=0.2,
    )
    result.loss.sum().backward()
    assert result.loss.tolist() == [-1.0, 0.0]
    assert result.ratio.tolist() == [1.0, 1.0]
    assert not result.clipped_high.any()
    assert log_probabilities.grad is not None
    assert log_probabilities.grad.tolist() == [-1.0, 0.0]
