"""The processes that train one model together: their shares of the work, and of the model.

Every process calls the same functions with the same arguments (single program, multiple data), and has the same
results. Between the calls each holds a slice of every weight, gradient and moment: torch's FSDP2 (`fully_shard`, Zhao
et al. 2023, arXiv 2304.11277), which gathers one layer's weights at a time.

* **Sequences are dealt**: of every mini-batch each process computes its share, see `shares`. Weights are gathered and
  gradients summed by all processes together, so all make the same number of passes: one that has fewer micro-batches
  computes the shortest sequence of the batch again, without a reply token, whose gradient is 0.
* **Gradients are sums** over the processes. Token weights are those of the whole mini-batch
  (`turnwise.policy.learner.update`), so the objective does not depend on how its sequences are dealt.
* **Results**: with one number of processes they repeat to the bit; with another they differ by the rounding of sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from turnwise.data.arrays import Numbers, SequenceBatch
from turnwise.policy.scoring import MicroBatch, by_length, pad


def shares(lengths: Sequence[int], processes: int) -> list[list[int]]:
    """The indices of the sequences that each process computes, balanced by tokens.

    The longest sequence goes first, each to the process with the fewest tokens so far (Graham's rule), so that two
    processes differ by the longest sequence at most. Equal lengths and equal processes are taken in order: the shares
    are a function of the lengths.
    """
    dealt: list[list[int]] = [[] for _ in range(processes)]
    tokens = [0] * processes
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        least = tokens.index(min(tokens))
        dealt[least].append(index)
        tokens[least] += lengths[index]
    return dealt


@dataclass(frozen=True)
class Peers:
    """One of the processes that train a model together. All of them call the same methods in the same order."""

    rank: int
    """0 to size - 1."""
    size: int
    mesh: DeviceMesh
    """All processes, in one dimension."""

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes files: the first one."""
        return self.rank == 0

    def lay_out(
        self, sequences: SequenceBatch, token_budget: int, pad_token: int, device: torch.device
    ) -> list[MicroBatch]:
        """The process's own micro-batches, padded, within a budget of padded tokens; every process has equally many."""
        lengths = sequences.lengths.tolist()
        layouts = [
            [[own[place] for place in members] for members in by_length([lengths[each] for each in own], token_budget)]
            for own in shares(lengths, self.size)
        ]
        own = [pad(sequences, members, pad_token, device) for members in layouts[self.rank]]
        passes = max(len(layout) for layout in layouts)
        if len(own) < passes:
            shortest = min(range(len(lengths)), key=lambda index: (lengths[index], index))
            own += [without_replies(pad(sequences, [shortest], pad_token, device))] * (passes - len(own))
        return own

    def gathered(self, value: Any) -> list[Any]:
        """Every process's value, by rank. A value is what JSON has; a number keeps all its bits."""
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(sizes, torch.tensor([len(text)]))
        longest = int(torch.cat(sizes).max())
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        distributed.all_gather(texts, torch.nn.functional.pad(text, (0, longest - len(text))))
        return [json.loads(bytes(each[: int(size)].tolist())) for each, size in zip(texts, sizes, strict=True)]

    def total(self, values: Numbers) -> Numbers:
        """The sum of the processes' arrays, which have one shape."""
        summed = torch.from_numpy(values.copy())
        distributed.all_reduce(summed)
        total: Numbers = summed.numpy()
        return total

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace the gradients of parameters that every process holds whole by their sums over the processes."""
        for parameter in parameters:
            assert parameter.grad is not None, "every process makes a backward pass"
            distributed.all_reduce(parameter.grad)

    def shard(self, root: torch.nn.Module, layers: Iterable[torch.nn.Module]) -> None:
        """Slice the parameters of a module, whose `layers` are gathered one at a time; it moves to this device.

        From here on its parameters are `DTensor`s. Only `root` itself may be called: its parts are gathered by hooks
        around its forward pass.
        """
        for module in (*layers, root):
            fully_shard(module, mesh=self.mesh, reshard_after_forward=True)
        for module in root.modules():
            if isinstance(module, FSDPModule):
                # A sum, by an operation that gloo has.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)


def without_replies(micro_batch: MicroBatch) -> MicroBatch:
    """The micro-batch without members and reply tokens: its passes are computed, and add nothing."""
    return replace(
        micro_batch,
        members=(),
        rows=micro_batch.rows[:0],
        columns=micro_batch.columns[:0],
        targets=micro_batch.targets[:0],
        places=micro_batch.places[:0],
    )
