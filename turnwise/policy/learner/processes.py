"""Several processes that train one policy, and the learners and critics that they hold: `compute.learner_processes`.

    this process                            N processes: turnwise.policy.learner.worker
    processes.call("0.update", batch)  ->   learner.update(batch), each its share
                                       <-   the same metrics from each

They share weights, gradients and moments as `turnwise.policy.sharding` says, over gloo on the CPU and NCCL on cards, of
which each has one. They stay until this process ends, and hold what its stages hold in memory. They find each other by
a file, and talk over the loopback address alone.

A process that dies, or does not answer the others in time, ends all of them: the call raises `LearnerLost`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch.distributed

from turnwise.child_process import GOES_ON, ChildProcess, ProcessGroup
from turnwise.errors import LearnerLost, TurnwiseError
from turnwise.policy.learner.distillation import Teacher
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

SECONDS_TO_WAIT = 600.0
"""How long a process waits for the others within one exchange of tensors. The work between two takes seconds."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True)
class ObjectNumber:
    """Stands for one of the processes' objects among the arguments of a request."""

    number: int


@dataclass(frozen=True)
class LearnerRequest:
    """What all processes are to do: to make an object, or to call a method of one."""

    forgotten: tuple[int, ...]
    """Objects that are no longer needed."""
    makes: int | None
    """The number of the object to make; None: call a method."""
    path: str
    """`learner.restore` makes a learner; `3.critic.values` calls the critic of object 3."""
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


class LearnerProcesses(ProcessGroup):
    """N processes that hold learners and critics together."""

    def __init__(self, size: int, *, device: str, seconds: float = SECONDS_TO_WAIT) -> None:
        """Start them. `device` is cpu or cuda; `seconds` is `SECONDS_TO_WAIT`."""
        self.size = size
        self._numbers, self._forgotten = count(), list[int]()
        folder = tempfile.mkdtemp(prefix="turnwise-learner-")
        rest = size, str(Path(folder) / "rendezvous"), device, seconds
        environment = {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK, **os.environ}
        children = list[ChildProcess]()
        super().__init__("learner", "their policy is trained", children, folder)
        for rank in range(size):
            children.append(ChildProcess("turnwise.policy.learner.worker", rank, *rest, environment=environment))

    def make(self, path: str, *arguments: Any, **keywords: Any) -> Any:
        """Have all of them make a learner or a critic, see `LearnerRequest`; what is returned stands for it."""
        number = next(self._numbers)
        self._ask_all(number, path, arguments, keywords)
        proxy = (LearnerOnProcesses if path.startswith("learner") else OnProcesses)(self, str(number))
        weakref.finalize(proxy, self.forget, number)
        return proxy

    def call(self, path: str, *arguments: Any, **keywords: Any) -> Any:
        """Have all of them call a method, and return its result, the first one's.

        Raises what the method raises, and LearnerLost where a process is lost. The processes have ended then, unless
        all of them have refused in the same way.
        """
        return self._ask_all(None, path, arguments, keywords)

    def forget(self, number: int) -> None:
        """Have them forget an object the next time that they are asked for anything."""
        self._forgotten.append(number)

    def _ask_all(self, makes: int | None, path: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        forgotten, self._forgotten = tuple(self._forgotten), []
        request = LearnerRequest(forgotten, makes, path, arguments, keywords)
        answers, failures = self.ask(dict.fromkeys(range(self.size), request))
        if failures:
            failure = self._failure(failures)
            if len(failures) < self.size or not isinstance(failure, TurnwiseError) or isinstance(failure, LearnerLost):
                self.close()
            raise failure
        return answers[0]

    def _failure(self, failures: dict[int, Exception]) -> Exception:
        """What to raise: a death before an error, since the others' errors follow from it."""
        if (loss := self.loss(failures)) is not None:
            return LearnerLost(loss, "TW-learner-lost")
        errors = [error for _, error in sorted(failures.items())]
        if len({type(error) for error in errors}) == 1 and len(errors) == self.size and not _timed_out(errors[0]):
            return errors[0]
        if own := [error for error in errors if not _timed_out(error)]:
            return own[0]
        return LearnerLost(
            f"all {self.size} learner processes must answer each other in time; process {min(failures)} waited in vain "
            f"({errors[0]}): {GOES_ON}",
            "TW-learner-lost",
        )


def _timed_out(error: BaseException) -> bool:
    """Whether a process failed since another one did not answer it."""
    return isinstance(error, torch.distributed.DistBackendError) or (
        type(error) is RuntimeError and any(word in str(error) for word in ("Timed out", "Connection closed by peer"))
    )


class OnProcesses:
    """Stands for a learner or a critic that several processes hold: its methods are called in each of them."""

    def __init__(self, processes: LearnerProcesses, path: str) -> None:
        self.processes, self._path = processes, path

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The method of this name; it returns what it returns in the first process."""
        return partial(self._call, name)  # which keeps this object until it has returned

    def _call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        return self.processes.call(f"{self._path}.{name}", *arguments, **keywords)


class LearnerOnProcesses(OnProcesses):
    """A learner that several processes hold, with the methods of `turnwise.policy.learner.learner.Learner`."""

    model: None = None
    """Each process holds a slice of it."""
    critic: OnProcesses | None = None

    def add_critic(self, policy: Path) -> None:
        """As `Learner.add_critic`."""
        self._call("add_critic", policy)
        self.critic = OnProcesses(self.processes, f"{self._path}.critic")

    @property
    def steps(self) -> int:
        """As `Learner.steps`."""
        steps: int = self._call("steps")
        return steps

    def update(
        self,
        batch: UpdateBatch,
        settings: UpdateSettings,
        sampler: LearnerOnProcesses | None = None,
        teacher: Teacher | None = None,
    ) -> dict[str, float]:
        """As `Learner.update`; a `sampler` must be held by the same processes."""
        older = None if sampler is None else ObjectNumber(int(sampler._path))
        metrics: dict[str, float] = self._call("update", batch, settings, older, teacher)
        return metrics
