"""What Prefect's server is told of a task run: the states that last, and what it is of, as tags.

    Pending      never: a stage that is called runs at once
    Running      when it has lasted a second, or has ended in anything but success
    Completed, Cached, Failed, AwaitingRetry, Crashed, ...      at once

Prefect reports each state as an event, whose way into the server's database takes 1.5 ms of processor time there and a
millisecond here; most stages of an iteration take less than a second. Nothing that Prefect shows of a run is lost: an
event describes the whole run, with the times at which it began and ended.

The tags are those of its flow run and its stage. They are added to what is reported: for each tag that a task run has
when it begins, Prefect requests a slot from its server first, and a second time to give it back.
"""

from __future__ import annotations

import threading
import time
from contextvars import Context, copy_context
from typing import Any

from prefect.context import FlowRunContext
from prefect.events import utilities
from prefect.events.related import tags_as_related_resources
from prefect.events.schemas.events import Event
from prefect.events.worker import EventsWorker

from flows.runtime.housekeeping import of_process
from tasks.prefect_task import current_stage

OF_TASK_RUNS = "prefect.task-run."
SECONDS_UNREPORTED = 1.0
"""How long a stage runs before the server is told that it is running."""
SECONDS_BETWEEN_LOOKS = 0.25


class LastingStates(EventsWorker):
    """Prefect's sender of events, which holds back that a task is running until that has lasted."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._held: dict[str, tuple[float, Context, Event]] = {}
        """By task run: since when it is running, the context in which it began to, and the event."""
        self._holding = threading.Lock()
        threading.Thread(target=self._report_what_lasts, name="lasting states", daemon=True).start()

    def send(self, item: Event) -> None:
        """Send an event, or hold it back."""
        run, state = item.resource.id, item.event.removeprefix(OF_TASK_RUNS)
        if state == item.event:  # of something else
            super().send(item)
            return
        _add_tags(item)
        if state == "Running":
            with self._holding:
                self._held[run] = time.monotonic(), copy_context(), item
        elif state != "Pending":
            with self._holding:
                before = self._held.pop(run, None)
            if before is not None and item.resource["prefect.state-type"] != "COMPLETED":
                self._send_held(before)
            super().send(item)

    def _send_held(self, held: tuple[float, Context, Event]) -> None:
        _, context, event = held
        context.run(super().send, event)  # the sender reads from its context which flow run this is a part of

    def _report_what_lasts(self) -> None:
        while True:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if self._stopped:  # the process ends
                return
            # Under the lock, so that no later state of the run overtakes it.
            with self._holding:
                for run, held in list(self._held.items()):
                    if time.monotonic() - held[0] >= SECONDS_UNREPORTED:
                        self._send_held(self._held.pop(run))


def _add_tags(item: Event) -> None:
    """Tag the task run that an event describes. The event has its flow run's tags by itself."""
    context, stage = FlowRunContext.get(), current_stage.get()
    if context is None or context.flow_run is None or stage is None:
        return
    of_stage = f"stage {stage}"
    item.payload["task_run"]["tags"] = [*(tag for tag in context.flow_run.tags if not of_process(tag)), of_stage]
    item.related += tags_as_related_resources([of_stage])


def report_lasting_states() -> None:
    """From here on, report the task runs of this process in this way."""
    utilities.EventsWorker = LastingStates  # type: ignore[assignment, misc]
