"""One process computes a result at a time: whoever asks for the same one meanwhile waits for it, and finds it.

    <home>/computing/<stage>-<digest of the cache key>    locked by the process that computes it

The kernel releases the lock when its process dies, also by SIGKILL; whoever waits then computes. So what many runs
share, such as a warm start, a task set or a first rollout, is made once, however many of them begin together.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from turnwise import progress
from turnwise.project import home


@contextmanager
def exclusive(key: str) -> Iterator[None]:
    """Keep every other process and thread of this home out of this block, for the same cache key.

    Not reentrant. On a shared file system the processes of all its machines are kept out, if it knows `flock`.
    """
    path = home() / "computing" / key.replace("/", "-")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as file:
            _lock(file)
            if not _is_at(file, str(path)):  # removed by the one that was waited for
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _lock(file: IO[str]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress.report("waits for another process, which computes the same", 0, 1)
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: IO[str], path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
