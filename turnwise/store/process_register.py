"""Which processes of a home live, so that what a killed one left unfinished can be closed.

    <home>/processes/<register>/<token>    locked by its process; the kernel releases the lock when the process dies

What a process begins is marked with its token. A token whose file is there and is not locked is that of a process that
has ended; of a token without a file nothing is known: it may be of another home, or be dealt with already.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from turnwise.project import home

_entering = threading.Lock()
_until_the_end = ExitStack()
"""The locks of this process, held until it ends."""
_own: dict[tuple[int, Path], Path] = {}
"""By process and register, the file of this process. A record lock does not keep out the process that holds it, which
would take itself for dead."""


class ProcessRegister:
    """The processes of this home that do one kind of work, which `name` says."""

    def __init__(self, name: str) -> None:
        self._folder = home() / "processes" / name

    @property
    def own_token(self) -> str | None:
        """The token of this process; None before it has entered."""
        file = _own.get((os.getpid(), self._folder))
        return None if file is None or not file.exists() else file.name

    def enter(self) -> str:
        """Note that this process works now, and is known for as long as it lives; returns its token."""
        with _entering:
            if (own_token := self.own_token) is not None:
                os.utime(self._folder / own_token)
                return own_token
            token = uuid.uuid4().hex
            self._folder.mkdir(parents=True, exist_ok=True)
            # Renamed only once it is locked: under its final name, an unlocked file would look like that of a dead one.
            unlocked = self._folder / f".{token}"
            lock = _until_the_end.enter_context(unlocked.open("w"))
            fcntl.lockf(lock, fcntl.LOCK_EX)
            os.rename(unlocked, self._folder / token)
            _own[os.getpid(), self._folder] = self._folder / token
            return token

    @contextmanager
    def ended(self) -> Iterator[dict[str, float]]:
        """The tokens of processes that have ended, each with when it was last known to work, in seconds since 1970.

        No other process sees these while the block runs. Their files are removed when it has run to its end.
        """
        if not os.access(self._folder, os.W_OK):  # nobody has entered, or this home can only be read
            yield {}
            return
        with ExitStack() as locks:
            own = self.own_token
            others = [path for path in sorted(self._folder.glob("[!.]*")) if path.name != own]
            dead = {path: os.fstat(lock.fileno()).st_mtime for path in others if (lock := _lock_if_dead(path, locks))}
            yield {path.name: last_worked for path, last_worked in dead.items()}
            for path in dead:
                path.unlink(missing_ok=True)


def _lock_if_dead(path: Path, locks: ExitStack) -> IO[str] | None:
    """The file of a token, locked until `locks` is closed; None where its process lives or another deals with it."""
    with suppress(FileNotFoundError, PermissionError, BlockingIOError), ExitStack() as opened:
        lock = opened.enter_context(path.open("r+", encoding="utf-8"))
        # A flock lock would be shared with forked processes; a record lock belongs to one process alone.
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locks.enter_context(opened.pop_all())
        return lock
    return None
