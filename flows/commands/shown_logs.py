"""Which log records a command shows in the terminal: none that its last sentence repeats, and few of the same kind."""

from __future__ import annotations

import logging

from turnwise.errors import TurnwiseError

FAULTS_SHOWN = 5
"""Of worlds, after which a further fault is only counted: a world with a mistake in it fails in every episode."""


def is_not_said_at_the_end(record: logging.LogRecord) -> bool:
    """False for what Prefect logs, with a traceback, of an error that the command says in one sentence at its end.

    A task that ends so is logged twice: with its traceback, and then with its state.
    """
    error = record.exc_info[1] if record.exc_info else None
    if record.name.startswith("prefect.task_runs") and record.getMessage().startswith("Finished in state Failed"):
        return False
    return not (isinstance(error, TurnwiseError) and record.name.startswith(("prefect.flow_runs", "prefect.task_runs")))


class FirstFaults(logging.Filter):
    """Shows the first `FAULTS_SHOWN` faults of worlds, and says with the last of them that no more follow.

    What is lost in the end is counted in the results, and too many losses stop the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        if record.name != "turnwise.agent.host":
            return True
        self._seen += 1
        if self._seen == FAULTS_SHOWN:
            record.msg = f"{record.msg} (further faults of worlds are not shown)"
        return self._seen <= FAULTS_SHOWN
