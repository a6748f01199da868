"""Several processes that train one policy: `compute.learner_processes`.

    this process                            N processes: turnwise.policy.learner.worker
    processes.call("0.update", batch)  ->   learner.update(batch), each its share
                                       <-   the same metrics from each

`turnwise.policy.learner.on_processes` has their learners and critics with the methods of those of one process.

They share weights, gradients and moments as `turnwise.policy.sharding` says, over gloo on the CPU and NCCL on cards, of
which each has one. They stay until this process ends, and hold what its stages hold in memory. They find each other by
a file, and talk over the loopback address alone. What is sent to them are pickles over pipes that only this process and
the child hold.

A process that dies, or does not answer the others in time, ends all of them: the call raises `LearnerLost`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch.distributed

from turnwise.errors import LearnerLost, TurnwiseError
from turnwise.policy.child_process import GOES_ON, SECONDS_FOR_LAST_WORDS, Child, ended_with, sentence_for_loss
from turnwise.policy.learner.asked import Asked, Held

SECONDS_TO_WAIT = 600.0
"""How long a process waits for the others within one exchange of tensors. The work between two takes seconds."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class LearnerProcesses:
    """N processes that hold learners and critics together."""

    def __init__(self, size: int, *, device: str, seconds: float = SECONDS_TO_WAIT) -> None:
        """Start them. `device` is cpu or cuda; `seconds` is `SECONDS_TO_WAIT`."""
        self.size = size
        self._numbers, self._forgotten = count(), list[int]()
        self._folder = tempfile.mkdtemp(prefix="turnwise-learner-")
        self._processes: list[Child] = []
        self._ending = ended_with(self, self._processes, self._folder)
        arguments = [str(size), str(Path(self._folder) / "rendezvous"), device, str(seconds)]
        for rank in range(size):
            environment = {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK, **os.environ}
            module = "turnwise.policy.learner.start_worker"
            self._processes.append(Child(module, [str(rank), *arguments], environment))

    @property
    def alive(self) -> bool:
        """Whether they can be asked: none was lost, and `close` was not called."""
        return self._ending.alive and all(each.alive for each in self._processes)

    @property
    def process_ids(self) -> list[int]:
        """Of the processes, by rank."""
        return [each.process_id for each in self._processes]

    def close(self) -> None:
        """End them."""
        self._ending()

    def make(self, path: str, *arguments: Any, **named: Any) -> Held:
        """Have all of them make an object, see `turnwise.policy.learner.asked.Asked`."""
        made = next(self._numbers)
        self._ask(Asked((), made, path, arguments, named))
        return Held(made)

    def call(self, path: str, *arguments: Any, **named: Any) -> Any:
        """Have all of them call a method, and return its result, the first one's.

        Raises what the method raises, and LearnerLost where a process is lost. The processes have ended then, unless
        all of them have refused in the same way.
        """
        return self._ask(Asked((), None, path, arguments, named))

    def forget(self, held: Held) -> None:
        """Have them forget an object the next time that they are asked for anything."""
        self._forgotten.append(held.number)

    def _ask(self, asked: Asked) -> Any:
        forgotten, self._forgotten = tuple(self._forgotten), []
        asked = Asked(forgotten, asked.made, asked.path, asked.arguments, asked.named)
        answers: dict[int, Any] = {}
        failures: dict[int, BaseException | None] = {}  # None: the process has died
        waiting = {each.asks: rank for rank, each in enumerate(self._processes)}
        try:
            for asks in list(waiting):
                try:
                    asks.send(asked)
                except OSError:
                    failures[waiting.pop(asks)] = None
            until = None
            while waiting:
                if failures and until is None:
                    until = time.monotonic() + SECONDS_FOR_LAST_WORDS
                ready = wait(waiting, None if until is None else max(0.0, until - time.monotonic()))
                if not ready:
                    break
                for found in ready:
                    assert isinstance(found, Connection)
                    rank = waiting.pop(found)
                    try:
                        done, answer = found.recv()
                    except (EOFError, OSError):
                        failures[rank] = None
                        continue
                    if done:
                        answers[rank] = answer
                    else:
                        failures[rank] = answer
        except BaseException:
            self.close()  # some have done what the others have not
            raise
        if failures:
            failure = self._failure(failures)
            if len(failures) < self.size or not isinstance(failure, TurnwiseError) or isinstance(failure, LearnerLost):
                self.close()
            raise failure
        return answers[0]

    def _failure(self, failures: dict[int, BaseException | None]) -> BaseException:
        """What to raise: a death before an error, since the others' errors follow from it."""
        for rank, error in sorted(failures.items()):
            if error is None:
                return LearnerLost(sentence_for_loss(self._processes, rank, "learner", "their policy is trained"))
        errors = [error for _, error in sorted(failures.items()) if error is not None]
        if len({type(error) for error in errors}) == 1 and len(errors) == self.size and not _timed_out(errors[0]):
            return errors[0]
        if own := [error for error in errors if not _timed_out(error)]:
            return own[0]
        return LearnerLost(
            f"all {self.size} learner processes must answer each other in time; process {min(failures)} waited in vain "
            f"({errors[0]}): {GOES_ON}"
        )


def _timed_out(error: BaseException) -> bool:
    """Whether a process failed since another one did not answer it."""
    return isinstance(error, torch.distributed.DistBackendError) or (
        type(error) is RuntimeError and any(word in str(error) for word in ("Timed out", "Connection closed by peer"))
    )
