"""AdamW over named parameters, with a state that can be saved; the learner and the critic both use it.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = w - lr (m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + 1e-8) + decay w)

Paper: Loshchilov and Hutter 2019 (arXiv 1711.05101), as implemented in torch. The gradient's norm over all parameters
is clipped first. The moments are stored by the parameters' names; a restored optimizer continues exactly, to the bit.
Where they are to take less memory, `turnwise.policy.moments` holds them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor

from turnwise.config.model_settings import PLAIN, ModelOptions
from turnwise.errors import ArtifactError, NotFiniteError
from turnwise.policy.moments import HeldAdamW
from turnwise.policy.slices import placed_like, whole


class NamedAdamW:
    """AdamW on a fixed set of parameters. Its moments start empty."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], options: ModelOptions = PLAIN) -> None:
        self._parameters = dict(parameters)
        sliced = [each for each in self._parameters.values() if isinstance(each, DTensor)]
        held_whole = [each for each in self._parameters.values() if not isinstance(each, DTensor)]
        self._groups = [group for group in (held_whole, sliced) if group]
        """Parameters by whether other processes hold slices of them: no operation takes both kinds at once."""
        self._optimizer: torch.optim.AdamW | HeldAdamW
        if options.moments == "float32" and not options.offload_moments:
            groups = [{"params": group} for group in self._groups]
            self._optimizer = torch.optim.AdamW(groups, lr=0.0, weight_decay=0.0, fused=True)
        else:
            self._optimizer = HeldAdamW(self._parameters, options.moments, offload=options.offload_moments)

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
        norm = self._clip(maximum_gradient_norm)
        if not math.isfinite(norm):
            self._optimizer.zero_grad()
            raise gradient_not_finite(norm)
        for group in self._optimizer.param_groups:
            group.update(lr=learning_rate, betas=betas, weight_decay=weight_decay)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def save(self, file: Path, *, writes: bool = True) -> None:
        """Write the moments and the number of steps as safetensors, and create the folder where it is missing.

        Without `writes` this process only takes part in gathering the moments, which another one writes.
        """
        states: dict[str, torch.Tensor] = {}
        for name, parameter in self._parameters.items():
            for part, tensor in self._optimizer.state.get(parameter, {}).items():
                found = whole(tensor.detach())
                if writes:
                    states[f"{part}.{name}"] = found.cpu().contiguous()
        if writes:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file(states, file)

    def restore(self, file: Path) -> None:
        """Load the state that `save` wrote. Raises ArtifactError when it is missing or has other parameters."""
        if not file.is_file():
            raise ArtifactError(
                f"to go on, an optimizer must have its state in {file}; it is missing: compute it again"
            )
        states = load_file(file)
        if not states:
            return
        parts = {name: self._parts(parameter) for name, parameter in self._parameters.items()}
        found = {name: (tensor.shape, tensor.dtype) for name, tensor in states.items()}
        expected = {
            f"{part}.{name}": kind for name, of_parameter in parts.items() for part, kind in of_parameter.items()
        }
        if found != expected:
            differing = min(name for name in found | expected if found.get(name) != expected.get(name))
            raise ArtifactError(
                "an optimizer's state must be that of the parameters which are trained, in the precision of "
                f"compute.moments; {file} differs, first in {differing}: begin without it, or compute it again"
            )
        for name, parameter in self._parameters.items():
            state = {part: states[f"{part}.{name}"] for part in parts[name]}
            if isinstance(self._optimizer, HeldAdamW):
                self._optimizer.take(parameter, state)
            else:
                self._optimizer.state[parameter] = {
                    part: found.to(parameter.device) if part == "step" else placed_like(found, parameter)
                    for part, found in state.items()
                }

    def _clip(self, maximum: float) -> float:
        """Scale the gradient so that its norm is at most `maximum`; return the norm before."""
        if len(self._groups) == 1:
            return whole(torch.nn.utils.clip_grad_norm_(self._groups[0], maximum)).item()
        gradients = [[each.grad for each in group if each.grad is not None] for group in self._groups]
        norm = torch.stack([whole(torch.nn.utils.get_total_norm(each)).cpu() for each in gradients]).norm()
        for group in self._groups:
            torch.nn.utils.clip_grads_with_norm_(group, maximum, norm.to(group[0].device))
        return norm.item()

    def _parts(self, parameter: torch.nn.Parameter) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """The tensors of a parameter's state, by name."""
        if isinstance(self._optimizer, HeldAdamW):
            return self._optimizer.parts(parameter)
        moments = dict.fromkeys(("exp_avg", "exp_avg_sq"), (parameter.shape, parameter.dtype))
        return {**moments, "step": (torch.Size(), torch.float32)}


def gradient_not_finite(norm: float) -> NotFiniteError:
    """What to raise for a gradient of this norm, in place of the step."""
    return NotFiniteError(f"the gradient must be finite; its norm is {norm}: lower the learning rate")
