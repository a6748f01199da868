"""AdamW over named parameters, with a state that can be saved; the learner and the critic both use it.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    w = w - lr (m / (1 - b1^n) / (sqrt(v / (1 - b2^n)) + 1e-8) + decay w)

Paper: Loshchilov and Hutter 2019 (arXiv 1711.05101), as implemented in torch. The gradient's norm over all parameters
is clipped first. The moments are stored by the parameters' names; a restored optimizer continues exactly, to the bit.

Moments can take less memory: in bfloat16, in 8 bits, or on the host. Between steps they are held as configured. In
a step a part of a parameter at a time has them in float32 on the parameter's device, torch's own AdamW takes the step,
and they are put away again. So the arithmetic is the same in every case; what differs is what is remembered.

* **bfloat16**, by stochastic rounding: with x between its neighbours d < u, round(x) is u with probability
  (x - d) / (u - d), so that E[round(x)] = x. Zamirai et al. 2020, arXiv 2010.06192. To the nearest, the second moment
  would not move: it changes by 1 - b2 = 0.001 of itself, less than half of bfloat16's spacing. The random numbers are a
  function of the step and of the parameter's name.
* **8-bit**: blocks of 256 numbers with a scale each, dynamically quantised; Dettmers et al. 2021, arXiv 2110.02861, by
  torchao. As there, a parameter of less than 4,096 numbers, or not of whole blocks, has moments in float32.
* **On the host**: they cross to the device and back in every step. No bit of the result depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from torch.optim.adamw import adamw

from turnwise.config.model_settings import PLAIN, ModelOptions, Moments
from turnwise.errors import ArtifactError, NotFiniteError
from turnwise.policy.slices import placed_like, whole
from turnwise.seeding import derive


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
                gathered = whole(tensor.detach())
                if writes:
                    states[f"{part}.{name}"] = gathered.cpu().contiguous()
        if writes:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file(states, file)

    def restore(self, file: Path) -> None:
        """Load the state that `save` wrote. Raises ArtifactError when it is missing or has other parameters."""
        if not file.is_file():
            raise ArtifactError(
                f"to go on, an optimizer must have its state in {file}; it is missing: compute it again",
                "TW-optimizer-state",
            )
        states = load_file(file)
        if not states:
            return
        parts = {name: self._parts(parameter) for name, parameter in self._parameters.items()}
        stored = {name: (tensor.shape, tensor.dtype) for name, tensor in states.items()}
        expected = {f"{part}.{name}": kind for name, kinds in parts.items() for part, kind in kinds.items()}
        if stored != expected:
            differing = min(name for name in stored | expected if stored.get(name) != expected.get(name))
            raise ArtifactError(
                "an optimizer's state must be that of the parameters which are trained, in the precision of "
                f"compute.moments; {file} differs, first in {differing}: begin without it, or compute it again",
                "TW-optimizer-state",
            )
        for name, parameter in self._parameters.items():
            state = {part: states[f"{part}.{name}"] for part in parts[name]}
            if isinstance(self._optimizer, HeldAdamW):
                self._optimizer.take(parameter, state)
            else:
                self._optimizer.state[parameter] = {
                    part: stored.to(parameter.device) if part == "step" else placed_like(stored, parameter)
                    for part, stored in state.items()
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
    return NotFiniteError(f"the gradient must be finite; its norm is {norm}: lower the learning rate", "TW-not-finite")


PART = 2**22
"""Numbers of a parameter whose moments are in float32 at once: a whole number of blocks."""
BLOCK = 256
FEWEST_QUANTISED = 4096
_MOMENTS = ("exp_avg", "exp_avg_sq")
_EPSILON = 1e-8


class HeldAdamW(torch.optim.Optimizer):
    """AdamW over named parameters, with moments that are held in another precision or on the host."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], moments: Moments, *, offload: bool) -> None:
        """Start with empty moments; `offload` holds them on the host."""
        super().__init__(parameters.values(), {"lr": 0.0, "betas": (0.9, 0.999), "weight_decay": 0.0})
        self._names = {parameter: name for name, parameter in parameters.items()}
        self._moments, self._offload = moments, offload

    def parts(self, parameter: torch.nn.Parameter) -> dict[str, tuple[torch.Size, torch.dtype]]:
        """The tensors that a parameter's state consists of, by the names under which they are saved."""
        parts = {"step": (torch.Size(), torch.float32)}
        for moment in _MOMENTS:
            if self._moments == "8-bit" and parameter.numel() >= FEWEST_QUANTISED and parameter.numel() % BLOCK == 0:
                parts[f"{moment}_codes"] = (parameter.shape, torch.uint8)
                parts[f"{moment}_scale"] = (torch.Size([parameter.numel() // BLOCK]), torch.float32)
            else:
                dtype = torch.bfloat16 if self._moments == "bfloat16" else torch.float32
                parts[moment] = (parameter.shape, dtype)
        return parts

    def take(self, parameter: torch.nn.Parameter, state: Mapping[str, torch.Tensor]) -> None:
        """Put a parameter's state, the tensors of `parts`, where it is held."""
        device = torch.device("cpu") if self._offload else parameter.device
        pins = self._offload and torch.cuda.is_available()
        moved = {name: tensor if name == "step" else tensor.to(device) for name, tensor in state.items()}
        self.state[parameter] = {name: tensor.pin_memory() if pins else tensor for name, tensor in moved.items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that there are."""
        assert closure is None, "a step is taken with the gradient that is there"
        (group,) = self.param_groups
        for parameter in group["params"]:
            if parameter.grad is not None:
                if not self.state[parameter]:
                    parts = self.parts(parameter)
                    self.take(parameter, {name: torch.zeros(*part[:1], dtype=part[1]) for name, part in parts.items()})
                self._step_parameter(parameter, group)

    def _step_parameter(self, parameter: torch.nn.Parameter, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        weights, gradient = parameter.view(-1), parameter.grad.reshape(-1)  # type: ignore[union-attr]
        generator = torch.Generator(parameter.device)
        generator.manual_seed(derive(0, "rounding of moments", int(state["step"]) + 1, self._names[parameter]))
        for begin in range(0, len(weights), PART):
            part = slice(begin, begin + PART)
            first, second = (self._read(state, moment, part, parameter.device) for moment in _MOMENTS)
            adamw(
                [weights[part]],
                [gradient[part]],
                [first],
                [second],
                [],
                [state["step"].to(parameter.device, copy=True)],
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=_EPSILON,
                maximize=False,
            )
            for moment, values in zip(_MOMENTS, (first, second), strict=True):
                self._write(state, moment, part, values, generator)
        state["step"] += 1

    def _read(self, state: Any, moment: str, part: slice, device: torch.device) -> torch.Tensor:
        """A part of a moment in float32 on the device, as a tensor of its own."""
        if moment in state:
            values: torch.Tensor = state[moment].view(-1)[part]
            return values.to(device, torch.float32, copy=True)
        codes, scale = state[f"{moment}_codes"].view(-1)[part], state[f"{moment}_scale"][_blocks(part)]
        return _dequantise(codes.to(device), scale.to(device), _map(moment, device))

    def _write(self, state: Any, moment: str, part: slice, values: torch.Tensor, generator: torch.Generator) -> None:
        if moment not in state:
            codes, scale = state[f"{moment}_codes"].view(-1)[part], state[f"{moment}_scale"][_blocks(part)]
            _quantise(values, _map(moment, values.device), codes, scale)
            return
        rounds = self._moments == "bfloat16"
        state[moment].view(-1)[part].copy_(rounded_stochastically(values, generator) if rounds else values)


def rounded_stochastically(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Finite float32 numbers in bfloat16, each its upper or its lower neighbour, with the number itself as the mean.

    bfloat16 is the upper half of a float32. A random number below 2**16 is added to the lower half, which carries into
    the upper one with the probability that is asked for.
    """
    noise = torch.randint(0, 2**16, values.shape, generator=generator, dtype=torch.int32, device=values.device)
    bits = (values.contiguous().view(torch.int32) + noise) & -(2**16)
    return bits.view(torch.float32).to(torch.bfloat16)


def _blocks(part: slice) -> slice:
    """The blocks of a part of a parameter."""
    return slice(part.start // BLOCK, part.stop // BLOCK)


def _quantise(values: torch.Tensor, numbers: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> None:
    """Write the codes and the scales of whole blocks; `numbers` are those that the codes stand for."""
    from torchao.optim.quant_utils import quantize_8bit_with_qmap, scale_tensor

    scaled, block_scales = scale_tensor(values, BLOCK)
    codes.copy_(quantize_8bit_with_qmap(scaled, numbers))
    scale.copy_(block_scales)


def _dequantise(codes: torch.Tensor, scale: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    from torchao.optim.quant_utils import dequant_with_qmap

    values: torch.Tensor = dequant_with_qmap(codes, numbers, scale)
    return values


@cache
def _map(moment: str, device: torch.device) -> torch.Tensor:
    """The 256 numbers that codes stand for; the second moment has no sign."""
    from torchao.optim.quant_utils import create_dynamic_map

    return torch.tensor(create_dynamic_map(signed=moment == "exp_avg"), device=device)
