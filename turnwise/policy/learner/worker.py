"""What a process that trains a policy together with others does: `turnwise.policy.learner.processes` asks it."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from functools import reduce
from typing import Any

import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh

from turnwise.child_process import ParentProcess
from turnwise.policy.learner.loading import makers
from turnwise.policy.learner.processes import LearnerRequest, ObjectNumber
from turnwise.policy.sharding import Peers

START = timedelta(minutes=10)
"""How long one may take to import torch, where a machine is busy."""
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class _Objects:
    """The learners and critics that this process holds a slice of, by number."""

    def __init__(self, peers: Peers) -> None:
        self._objects: dict[int, Any] = {}
        self._makers, self._peers = makers(), peers

    def answer(self, request: LearnerRequest) -> Any:
        """Do what is requested; the result of a method."""
        for number in request.forgotten:
            del self._objects[number]
        arguments = [
            self._objects[each.number] if isinstance(each, ObjectNumber) else each for each in request.arguments
        ]
        if request.makes is not None:
            self._objects[request.makes] = self._makers[request.path](*arguments, **request.keywords, peers=self._peers)
            return None
        target, *names = request.path.split(".")
        attribute = reduce(getattr, names, self._objects[int(target)])
        return attribute(*arguments, **request.keywords) if callable(attribute) else attribute


def main(parent: ParentProcess, rank: int, size: int, rendezvous: str, device: str, seconds: float) -> None:
    """Answer until there are no more requests."""
    # Nothing is done in place on what a pass returns.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    if device == "cuda":
        torch.cuda.set_device(rank)
    store = distributed.FileStore(rendezvous, size)
    store.set_timeout(START)
    store.set(str(rank), "started")
    store.wait([str(each) for each in range(size)])  # one may take much longer to start than to answer later
    distributed.init_process_group(
        BACKENDS[device], store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )
    parent.answer(_Objects(Peers(rank, size, init_device_mesh(device, (size,)))).answer)
    os._exit(0)  # the others may be gone already: nothing is left to be agreed on with them
