"""AdamW over named parameters, with a state that can be saved; the learner and the critic both use it.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = w - lr (m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + 1e-8) + decay w)

Paper: Loshchilov and Hutter 2019 (arXiv 1711.05101), as implemented in torch. The gradient's norm over all parameters
is clipped first. The moments are stored by the parameters' names; a restored optimizer continues exactly, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from turnwise.errors import ArtifactError, NotFiniteError

_STATE = ("exp_avg", "exp_avg_sq", "step")


class NamedAdamW:
    """AdamW on a fixed set of parameters. Its moments start empty."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self._optimizer = torch.optim.AdamW(self._parameters.values(), lr=0.0, weight_decay=0.0, fused=True)

    @property
    def steps(self) -> int:
        """Steps taken since the moments were empty."""
        state = next(iter(self._optimizer.state.values()), None)
        return 0 if state is None else int(state["step"].item())

    def step(
        self, *, learning_rate: float, maximum_gradient_norm: float, betas: tuple[float, float], weight_decay: float
    ) -> float:
        """Take one step with the accumulated gradient, clear it, and return its norm before clipping.

        Raises NotFiniteError, without taking the step, when the norm is not finite.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), maximum_gradient_norm))
        if not math.isfinite(norm):
            self._optimizer.zero_grad()
            raise NotFiniteError(f"the gradient must be finite; its norm is {norm}: lower the learning rate")
        for group in self._optimizer.param_groups:
            group.update(lr=learning_rate, betas=betas, weight_decay=weight_decay)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def save(self, file: Path) -> None:
        """Write the moments and the number of steps as safetensors, and create the folder where it is missing."""
        file.parent.mkdir(parents=True, exist_ok=True)
        states = {
            f"{part}.{name}": self._optimizer.state[parameter][part].detach().cpu().contiguous()
            for name, parameter in self._parameters.items()
            if parameter in self._optimizer.state
            for part in _STATE
        }
        save_file(states, file)

    def restore(self, file: Path) -> None:
        """Load the state that `save` wrote. Raises ArtifactError when it is missing or has other parameters."""
        if not file.is_file():
            raise ArtifactError(
                f"to go on, an optimizer must have its state in {file}; it is missing: compute it again"
            )
        states = load_file(file)
        expected = {f"{part}.{name}" for name in self._parameters for part in _STATE}
        if states and states.keys() != expected:
            raise ArtifactError(
                f"an optimizer's state must be that of the parameters which are trained; {file} differs, first in "
                f"{min(states.keys() ^ expected)}: begin without it, or compute it again"
            )
        for name, parameter in self._parameters.items() if states else ():
            self._optimizer.state[parameter] = {part: states[f"{part}.{name}"].to(parameter.device) for part in _STATE}
