"""Muon: momentum whose matrices are made orthogonal before each step. AdamW takes the steps of all else.

With the gradient G of a matrix of n rows and m columns, and the momentum M:

    M = 0.95 M + 0.05 G        N = 0.95 M + 0.05 G        as Nesterov's
    U V' of N = U S V'         by the iteration of Newton and Schulz, without a decomposition
    W = W - lr (0.2 sqrt(max(n, m)) U V' + decay W)

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); 0.2 sqrt(max(n, m)) gives a step the size of AdamW's,
so that both take the same learning rate (Liu et al. 2025, arXiv 2502.16982). Embeddings, the output layer, norms and
biases are AdamW's, as there.

torch's own Muon iterates in bfloat16. A processor without AVX-512 BF16 takes twenty times as long for it, so this one
iterates in float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from transformers import PreTrainedModel

from turnwise.policy.model import trained_parameters
from turnwise.policy.optimizer import NamedAdamW, gradient_not_finite

MOMENTUM = 0.95
STEP_OF_ADAMW = 0.2
"""The root of the mean square of a step of AdamW, over its learning rate."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of `orthogonal`, which raise small singular values fastest."""
ITERATIONS = 5


class MuonAndAdamW:
    """Muon on matrices, AdamW on other parameters. Its momentum starts empty and is not saved."""

    def __init__(self, matrices: Mapping[str, torch.nn.Parameter], others: Mapping[str, torch.nn.Parameter]) -> None:
        """Take steps of these parameters; `matrices` have two dimensions."""
        self._matrices = list(matrices.values())
        self._momenta: list[torch.Tensor] = []
        """One per matrix, once there has been a step."""
        self._others = NamedAdamW(others) if others else None
        self._all = [*self._matrices, *others.values()]

    @classmethod
    def of(cls, model: PreTrainedModel) -> MuonAndAdamW:
        """Muon on the matrices of a model's layers, AdamW on all else."""
        outside = {id(each.weight) for each in (model.get_input_embeddings(), model.get_output_embeddings())}
        trained = trained_parameters(model)
        matrices = {name: each for name, each in trained.items() if each.ndim == 2 and id(each) not in outside}
        return cls(matrices, {name: each for name, each in trained.items() if name not in matrices})

    def step(
        self, *, learning_rate: float, maximum_gradient_norm: float, betas: tuple[float, float], weight_decay: float
    ) -> float:
        """As `NamedAdamW.step`; `betas` are AdamW's."""
        norm = torch.nn.utils.clip_grad_norm_(self._all, maximum_gradient_norm).item()
        if not math.isfinite(norm):
            for parameter in self._all:
                parameter.grad = None
            raise gradient_not_finite(norm)
        if self._others is not None:
            self._others.step(
                learning_rate=learning_rate, maximum_gradient_norm=math.inf, betas=betas, weight_decay=weight_decay
            )
        self._momenta = self._momenta or [torch.zeros_like(matrix) for matrix in self._matrices]
        with torch.no_grad():
            for matrix, momentum in zip(self._matrices, self._momenta, strict=True):
                if matrix.grad is None:
                    continue
                momentum.lerp_(matrix.grad, 1.0 - MOMENTUM)
                direction = orthogonal(matrix.grad.lerp(momentum, MOMENTUM))
                matrix.mul_(1.0 - learning_rate * weight_decay)
                matrix.add_(direction, alpha=-learning_rate * STEP_OF_ADAMW * max(matrix.shape) ** 0.5)
                matrix.grad = None
        return norm


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """U V' of U S V', nearly: singular values between about 0.7 and 1.2 in place of 1, which is as good for training.

        X_0 = N / |N|        X_(k+1) = (a + b X_k X_k' + c (X_k X_k')^2) X_k

    A matrix of zeros stays one.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T).T
    a, b, c = COEFFICIENTS
    iterate = matrix / matrix.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        squares = iterate @ iterate.T
        iterate = torch.addmm(iterate, torch.addmm(squares, squares, squares, beta=b, alpha=c), iterate, beta=a)
    return iterate
