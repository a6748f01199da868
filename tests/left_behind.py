"""What a file of tests may leave behind: no thread and no process, but those that serve a whole test process.

Each of the latter is here by name, with the reason. Whatever else a file starts it stops: a thread that goes on falls
into what the next file replaces, and takes a core from it.
"""

from __future__ import annotations

import fnmatch
import os
import threading
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tests.process_tree import command_line, descendants, is_running

SECONDS_TO_END = 300.0
"""What has been told to end may take so long on a busy machine."""

THREADS: Mapping[str, str] = {
    "APILogWorkerThread": "Prefect's: it sends logs to the server of the session",
    "AnyIO worker thread": "the pool of Prefect's loops",
    "ConcurrencySlotAcquisitionWithLeaseServiceThread": "Prefect's: it asks for slots for tasks with tags",
    "EventsWorkerThread": "Prefect's: it sends events there",
    "GlobalEventLoopThread": "Prefect's: the loop of its calls",
    "LastingStatesThread": "ours in place of Prefect's sender of events",
    "MlflowLocalArtifactRepository_*": "MLflow's pool, which reads the tables of runs for those who ask it",
    "RunSyncEventLoopThread": "Prefect's: the loop of its calls from a running loop",
    "S3 of the session": "moto's server, which every test of tests/store takes in turn",
    "asyncio_*": "the pool of a loop that goes on: Prefect's or fsspec's",
    "asyncio-waitpid-*": "asyncio's, which waits for the driver of that browser to end",
    "attention_*": "the pool of the loops of turnwise.policy.single_queries, one for the process",
    "chromium": "the loop of the one browser of the process",
    "fsspecIO": "fsspec's loop, one for the process",
    "lasting states": "it looks for states that last, beside the sender of events",
    "loopback": "the server of the browser's pages, which knows it by its port",
    "mcp sessions": "the loop of every session with a tool server, one for the process",
    "prefect-server-heartbeat": "it keeps the server of the session alive",
    "tqdm_monitor": "tqdm's, one for the process",
    "verifiers endpoint": "one for all rollouts of a process: envs/verifiers/endpoint.py",
}
"""Threads that go on, by the pattern of their name, and why."""

PROCESSES: Mapping[str, str] = {
    "*chrom*": "the one browser of the process",
    "*playwright*": "the driver of that browser",
    "*-m flows.runtime.server *": "the Prefect server of the session",
}
"""Processes that go on, by a pattern of their command line, and why."""


@dataclass(frozen=True)
class Running:
    """What runs at one moment: threads of this process, and the processes below it."""

    threads: Set[threading.Thread]
    processes: Set[int]

    @classmethod
    def now(cls) -> Running:
        """What runs now."""
        return cls(frozenset(threading.enumerate()), frozenset(descendants(os.getpid())))

    def left_by(self) -> list[str]:
        """What has been started since and goes on, each in words. Waits a while for what is ending."""
        until = time.monotonic() + SECONDS_TO_END
        while (found := [*self._threads_since(), *self._processes_since()]) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def _threads_since(self) -> Iterator[str]:
        for thread in set(threading.enumerate()) - self.threads:
            if not _is_known(thread.name, THREADS):
                yield f"the thread {thread.name!r}"

    def _processes_since(self) -> Iterator[str]:
        for process in set(descendants(os.getpid())) - self.processes:
            command = command_line(process)
            if is_running(process) and command and not _is_known(command, PROCESSES):
                yield f"the process {command!r}"


def _is_known(name: str, patterns: Mapping[str, str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
