"""Tensors of which each process holds a slice, as torch's FSDP2 makes them: see `turnwise.policy.sharding`."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor


def is_sliced(module: torch.nn.Module) -> bool:
    """Whether the parameters of a part of this module are slices, which only calls of that part gather."""
    return any(isinstance(each, FSDPModule) for each in module.modules())


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor itself; of a slice all slices together, on the CPU. All processes must ask for it."""
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def placed_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A whole tensor on the parameter's device, sliced where the parameter is. All processes must have read it."""
    placed = tensor.to(parameter.device)
    if isinstance(parameter, DTensor):
        return distribute_tensor(placed, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return placed
