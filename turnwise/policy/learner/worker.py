"""What a process that trains a policy together with others does: it answers what all of them are asked for.

`turnwise.policy.learner.processes` asks, and `turnwise.policy.learner.start_worker` starts.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as distributed
from torch.distributed.device_mesh import init_device_mesh

from turnwise.errors import TurnwiseError
from turnwise.policy.critic.critic import Critic
from turnwise.policy.learner.asked import Asked, Held
from turnwise.policy.learner.learner import Learner
from turnwise.policy.sharding import Peers

START = timedelta(minutes=10)
"""How long one may take to import torch, where a machine is busy."""
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


class _Objects:
    """The learners and critics that this process holds a slice of, by number."""

    def __init__(self, peers: Peers, device: str) -> None:
        self._held: dict[int, Any] = {}
        self._makers: dict[str, Callable[..., Any]] = {
            "learner": Learner,
            "learner.restore": Learner.restore,
            "critic": Critic.with_own_trunk,
            "critic.restore": Critic.restore,
        }
        self._where: dict[str, Any] = {"peers": peers, "device": device}

    def answer(self, asked: Asked) -> Any:
        """Do what was asked for; the result of a method."""
        for number in asked.forgotten:
            del self._held[number]
        arguments = [self._held[each.number] if isinstance(each, Held) else each for each in asked.arguments]
        if asked.made is not None:
            self._held[asked.made] = self._makers[asked.path](*arguments, **asked.named, **self._where)
            return None
        held, *names = asked.path.split(".")
        found = reduce(getattr, names, self._held[int(held)])
        return found(*arguments, **asked.named) if callable(found) else found


def main(handle: int, rank: int, size: int, rendezvous: str, device: str, seconds: float) -> None:
    """Answer until there is nothing more to be asked for."""
    # Nothing is done in place on what a pass returns.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    asks = Connection(handle)
    if device == "cuda":
        torch.cuda.set_device(rank)
    store = distributed.FileStore(rendezvous, size)
    store.set_timeout(START)
    store.set(str(rank), "started")
    store.wait([str(each) for each in range(size)])  # one may take much longer to start than to answer later
    distributed.init_process_group(
        BACKENDS[device], store=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )
    objects = _Objects(Peers(rank, size, init_device_mesh(device, (size,))), device)
    while True:
        try:
            asked = asks.recv()
        except EOFError:
            break
        try:
            answer = (True, objects.answer(asked))
        except Exception as error:  # it is raised in the process that asked
            if not isinstance(error, TurnwiseError):
                error.add_note(f"In learner process {rank}:\n{traceback.format_exc()}")
            answer = (False, error)
        asks.send(answer)
    os._exit(0)  # the others may be gone already: nothing is left to be agreed on with them
