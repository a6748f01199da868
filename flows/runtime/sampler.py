"""The sampler: a process of its own that makes the next rollout while this one updates the policy (`rollout.lag`).

    this process    update 1: P_0 -> P_1    update 2: P_1 -> P_2    update 3: P_2 -> P_3
    the sampler     rollout 2 with P_0      rollout 3 with P_1      rollout 4 with P_2

It stays alive with its engine and reads policies from the store. A rollout that it makes is the cached result of the
same stage call that this process makes afterwards, and then finds in the store. So the results do not depend on whether
there is a sampler: what it has not made, because it is lost or was never started, is made where it is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, TypeAdapter

from flows.runtime.child_process import REFUSED, ChildProcess, given_work, saying
from tasks.calls import Call
from tasks.observing import Observer, StageCall, observing
from tasks.rollout.rollout import RolloutParameters, rollout
from turnwise.store import Reference

_CALL: TypeAdapter[StageCall] = TypeAdapter(StageCall)


class _Finished(Observer):
    """Says every stage that has returned."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def finished(self, call: StageCall) -> None:
        self._say(_CALL.dump_json(call).decode())


class RolloutOrder(BaseModel):
    """A call of the stage `rollout`, as the other process is sent it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    """Unique among the runs of an ablation: variant, seed, iteration."""
    parameters: RolloutParameters
    policy: Reference
    tokenizer: Reference
    task_set: Reference


class Sampler:
    """The other process, as seen from this one: see `sampling_ahead`. It makes one rollout at a time."""

    def __init__(self, report: Callable[[StageCall], None], warn: Callable[[str], None]) -> None:
        self.seconds = 0.0
        """Wall time of its rollouts in seconds, added up."""
        self._report, self._warn = report, warn
        self._process: ChildProcess | None = None
        self._begun: Call | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._made: set[str] = set()

    def begin(self, call: Call) -> None:
        """Have the rollout made unless it is in the store; the process is started if there is none."""
        if call.recorded() is not None:
            return
        if self._process is None:
            self._process = ChildProcess("flows.runtime.sampler", self._finished, self._ended)
        self._begun = call
        self._process.send(
            RolloutOrder.model_validate({"label": call.label, "parameters": call.parameters, **call.inputs})
        )

    def wait(self, call: Call) -> None:
        """Wait for this rollout if it was the last one begun, until it is made or the process is lost."""
        if self._begun is not None and call.key == self._begun.key:
            with self._changed:
                self._changed.wait_for(lambda: call.label in self._made or self._process is None)

    def end(self) -> None:
        """End the process: at once if it is still at work on a rollout, which nobody waits for any more."""
        self._ending = True
        process = self._process
        if process is None:
            return
        if self._begun is None or self._begun.label in self._made:
            process.finish()
            process.wait()
        else:
            process.kill()

    def _finished(self, line: str) -> None:
        call = _CALL.validate_json(line)
        self._report(call)
        with self._changed:
            self.seconds += call.seconds
            self._made.add(call.label)
            self._changed.notify_all()

    def _ended(self, status: int, last_words: str) -> None:
        if not self._ending and status != REFUSED:
            self._warn(
                f"the process that samples ahead ended with status {status}; its rollout is sampled here. It said:\n"
                f"{last_words}"
            )
        with self._changed:
            self._process = None
            self._changed.notify_all()


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


def main() -> None:
    """The sampler's process: make rollouts as standard input says, and report each on standard output."""
    with saying() as say, observing(_Finished(say)):
        from prefect import flow

        flow(name="rollouts ahead", flow_run_name="rollouts ahead", persist_result=False)(_make_rollouts)()


def _make_rollouts() -> None:
    """Make the rollouts of the next iterations while another process updates the policy."""
    for line in given_work():
        order = RolloutOrder.model_validate_json(line)
        rollout(
            order.parameters,
            policy=order.policy,
            tokenizer=order.tokenizer,
            task_set=order.task_set,
            label=order.label,
        )
