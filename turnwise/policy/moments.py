"""AdamW whose moments take less memory: in bfloat16, in 8 bits, or on the host.

Between steps the moments are held as the settings say. In a step a part of a parameter at a time has them in float32 on
the parameter's device, torch's own AdamW takes the step, and they are put away again. So the arithmetic is that of
`turnwise.policy.optimizer` in every case; what differs is what is remembered.

* **bfloat16**, by stochastic rounding: with x between its neighbours d < u, round(x) is u with probability
  (x - d) / (u - d), so that E[round(x)] = x. Zamirai et al. 2020, arXiv 2010.06192. To the nearest, the second moment
  would not move: it changes by 1 - b2 = 0.001 of itself, less than half of bfloat16's spacing. The random numbers are a
  function of the step and of the parameter's name.
* **8-bit**: blocks of 256 numbers with a scale each, dynamically quantised; Dettmers et al. 2021, arXiv 2110.02861, by
  torchao. As there, a parameter of less than 4,096 numbers, or not of whole blocks, has moments in float32.
* **On the host**: they cross to the device and back in every step. No bit of the result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.optim.adamw import adamw

from turnwise.config.model_settings import Moments
from turnwise.seeding import derive

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
                self._step_of(parameter, group)

    def _step_of(self, parameter: torch.nn.Parameter, group: Mapping[str, Any]) -> None:
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
            found: torch.Tensor = state[moment].view(-1)[part]
            return found.to(device, torch.float32, copy=True)
        codes, scale = state[f"{moment}_codes"].view(-1)[part], state[f"{moment}_scale"][_blocks(part)]
        return _dequantised(codes.to(device), scale.to(device), _map(moment, device))

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

    scaled, found = scale_tensor(values, BLOCK)
    codes.copy_(quantize_8bit_with_qmap(scaled, numbers))
    scale.copy_(found)


def _dequantised(codes: torch.Tensor, scale: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    from torchao.optim.quant_utils import dequant_with_qmap

    found: torch.Tensor = dequant_with_qmap(codes, numbers, scale)
    return found


@cache
def _map(moment: str, device: torch.device) -> torch.Tensor:
    """The 256 numbers that codes stand for; the second moment has no sign."""
    from torchao.optim.quant_utils import create_dynamic_map

    return torch.tensor(create_dynamic_map(signed=moment == "exp_avg"), device=device)
