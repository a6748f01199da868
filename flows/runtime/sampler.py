"""The sampler: a process of its own that makes the next rollout while this one updates the policy (`rollout.lag`).

    this process    update 1: P_0 -> P_1    update 2: P_1 -> P_2    update 3: P_2 -> P_3
    the sampler     rollout 2 with P_0      rollout 3 with P_1      rollout 4 with P_2

It stays alive with its engine and reads policies from the store. A rollout that it makes is the cached result of the
same stage call that this process makes afterwards, and then finds in the store. So the results do not depend on whether
there is a sampler: what it has not made, because it is lost or was never started, is made where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias

from pydantic import BaseModel

from tasks.calls import Call
from tasks.rollout.rollout import rollout
from turnwise.child_process import ChildProcess, ParentProcess, failure_message
from turnwise.errors import TurnwiseError
from turnwise.store import Reference
from turnwise.training_runs.observing import FinishedStages, StageCall, observing

RolloutOrder: TypeAlias = tuple[BaseModel, dict[str, Any]]
"""The arguments of the stage `rollout`, as the other process is sent them."""


class Sampler:
    """The other process, as seen from this one: see `sampling_ahead`. It makes one rollout at a time."""

    def __init__(self, report: Callable[[StageCall], None], warn: Callable[[str], None]) -> None:
        self.seconds = 0.0
        """Wall time of its rollouts in seconds, added up."""
        self._report, self._warn = report, warn
        self._process: ChildProcess | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sampler")
        """What asks the process."""
        self._pending: tuple[Call, Future[None]] | None = None
        self._ending = False

    def begin(self, call: Call) -> None:
        """Have the rollout made unless it is in the store; the process is started if there is none."""
        if call.recorded() is not None:
            return
        if self._process is None:
            self._process = ChildProcess("flows.runtime.sampler")
        order = call.parameters, {**call.inputs, "label": call.label}
        self._pending = call, self._thread.submit(self._request_rollout, order, self._process)

    def wait(self, call: Call) -> None:
        """Wait for this rollout if it was the last one begun, until it is made or the process is lost."""
        if self._pending is not None and self._pending[0].key == call.key:
            self._pending[1].result()

    def end(self) -> None:
        """End the process: at once if it is still at work on a rollout, which nobody waits for any more."""
        self._ending = True
        process = self._process
        if process is not None and (self._pending is None or self._pending[1].done()):
            process.finish()
        elif process is not None:
            process.kill()
        self._thread.shutdown()
        if process is not None:
            process.free()

    def _request_rollout(self, order: RolloutOrder, process: ChildProcess) -> None:
        if process is not self._process:  # it was lost with the rollout before
            return
        try:
            process.ask(order, self._finished)
        except TurnwiseError:  # this process, which makes the rollout then, meets it too and says it in one sentence
            return
        except Exception as error:
            if self._ending:
                return
            self._process = None
            process.discard()
            self._warn(failure_message("the process that samples ahead", error, "its rollout is sampled here"))

    def _finished(self, call: StageCall) -> None:
        self.seconds += call.seconds
        self._report(call)


@contextmanager
def sampling_ahead(
    wanted: bool, report: Callable[[StageCall], None], warn: Callable[[str], None]
) -> Iterator[Sampler | None]:
    """A sampler for the runs of the block, if one is wanted. It does not outlive the block or this process.

    Args:
        report: called from another thread with every rollout that it finishes.
        warn: called with a message for the user if it is lost.
    """
    if not wanted:
        yield None
        return
    sampler = Sampler(report, warn)
    try:
        yield sampler
    finally:
        sampler.end()


def main(parent: ParentProcess) -> None:
    """The sampler's process: make the rollouts that are requested, and report each."""
    from prefect import flow

    from flows.runtime.housekeeping import computing_for_another

    def make(order: RolloutOrder) -> Reference:
        parameters, inputs = order
        return rollout(parameters, **inputs)

    def make_rollouts() -> None:
        """Make the rollouts of the next iterations while another process updates the policy."""
        parent.answer(make)

    with computing_for_another(), observing(FinishedStages(parent.report)):
        flow(name="rollouts ahead", flow_run_name="rollouts ahead", persist_result=False)(make_rollouts)()
