"""Which log records a command shows in the terminal: none that its last sentence repeats, and few of the same kind."""

from __future__ import annotations

import logging

from turnwise.errors import TurnwiseError

FAULTS_SHOWN = 5
"""Of worlds, after which a further fault is only counted: a world with a mistake in it fails in every episode."""
LIMITS = {"turnwise.agent.host": (FAULTS_SHOWN, "of worlds"), "prefect.events.clients": (1, "of this kind")}
"""How many records of a logger are shown, and of what they are: a server that is lost takes none of a run's events."""


def is_not_said_at_the_end(record: logging.LogRecord) -> bool:
    """False for what Prefect logs, with a traceback, of an error that the command says in one sentence at its end.

    A task that ends so is logged twice: with its traceback, and then with its state. A server that is lost ends a flow
    run with an error of the connection, and Ctrl-C with what Prefect calls a crash.
    """
    if not record.name.startswith(("prefect.flow_runs", "prefect.task_runs")):
        return True
    error, said = record.exc_info[1] if record.exc_info else None, record.getMessage()
    if record.name.startswith("prefect.task_runs") and said.startswith("Finished in state Failed"):
        return False
    at_the_end = isinstance(error, TurnwiseError) or type(error).__module__.startswith("httpx")
    return not (at_the_end or "aborted by an interrupt signal" in said)


class FirstFaults(logging.Filter):
    """Shows the first faults of worlds and of the connection to Prefect's server, and says that no more follow.

    What is lost in the end is counted in the results, and too many losses stop the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen = dict.fromkeys(LIMITS, 0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.name not in LIMITS:
            return True
        most, kind = LIMITS[record.name]
        self._seen[record.name] += 1
        if self._seen[record.name] == most:
            record.msg = f"{record.msg} (further faults {kind} are not shown)"
        return self._seen[record.name] <= most
