"""A place that several machines share: a folder, or a prefix of an S3 bucket. Files by name, each all or nothing.

    FolderPlace("/mnt/lab/turnwise")       a folder, e.g. of a network file system
    BucketPlace("s3://bucket/turnwise")    by s3fs; credentials, region and AWS_ENDPOINT_URL come from the environment

Every call is repeated while the place answers that it is busy (503), does not answer in time, or has not kept what it
was sent: with growing pauses, for `PATIENCE_SECONDS`. What is sent counts as kept when the place lists it with its
size.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from turnwise.errors import ConfigurationError, StoreUnreachable

PATIENCE_SECONDS = 120.0
"""For how long a call is repeated before the place counts as unreachable."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 15.0
MARKER = "turnwise.json"
"""Written when an experiment begins, which shows that the place can be written to."""

Answer = TypeVar("Answer")


class NotKept(OSError):
    """The place has acknowledged a file and does not hold it whole."""


class SharedPlace(ABC):
    """A shared place: see the module. Names are paths relative to it, with forward slashes.

    Raises, from every method:
        StoreUnreachable: it did not answer, or failed, for as long as is waited.
        ConfigurationError: it refuses access, or does not exist.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def sizes(self, beginning: str) -> dict[str, int]:
        """The bytes of every file whose name begins so, by name."""
        return self._patiently(lambda: self._sizes(beginning))

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of these files; those that are not there are left out."""
        wanted = list(names)
        return self._patiently(lambda: self._read(wanted)) if wanted else {}

    def download(self, name: str, to: Path) -> bool:
        """Copy a file to this path. False if it is not there."""
        return self._patiently(lambda: self._download(name, to))

    def write(self, name: str, content: bytes) -> None:
        """Write a file; another writer's of the same name is replaced."""

        def write_and_look() -> None:
            self._write(name, content)
            if self._sizes(name).get(name) != len(content):
                raise NotKept(f"{name} was not kept whole")

        self._patiently(write_and_look)

    def upload(self, beginning: str, files: Mapping[str, Path]) -> None:
        """Copy these files to the place, by name, which all begin so; others of the same names are replaced."""
        lengths = {name: path.stat().st_size for name, path in files.items()}
        repeated = False

        def not_kept() -> dict[str, Path]:
            held = self._sizes(beginning)
            return {name: path for name, path in files.items() if held.get(name) != lengths[name]}

        def upload_what_is_not_kept() -> None:
            nonlocal repeated
            # What was kept before something failed is not sent again.
            missing, repeated = (not_kept() if repeated else files), True
            if missing:
                self._upload(missing)
                if left := not_kept():
                    raise NotKept(f"{', '.join(left)} not kept whole")

        if files:
            self._patiently(upload_what_is_not_kept)

    def remove(self, names: Collection[str]) -> None:
        """Remove these files; those that are not there stay so."""
        if names:
            self._patiently(lambda: self._remove(names))

    def require_writable(self) -> None:
        """Refuse a place that does not exist or cannot be written to, before anything is computed."""
        self.write(MARKER, b'{"layout": 1}\n')

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        ends, pause = time.monotonic() + PATIENCE_SECONDS, FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except Exception as error:
                if not self._is_passing(error):
                    raise
                if time.monotonic() + pause > ends:
                    first_line = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
                    raise StoreUnreachable(
                        f"the shared store {self.url} must answer within {PATIENCE_SECONDS:.0f} s; it does not "
                        f"({first_line}): when it does, give the same command again, which goes on where this one "
                        "stopped",
                        "TW-store-unreachable",
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def refused(self, error: Exception) -> ConfigurationError:
        """The error for a place that does not exist, or refuses access."""
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return ConfigurationError(
            f"storage.url must name a folder or bucket that exists and may be read and written; {self.url}: {said}",
            "TW-store-unusable",
        )

    def _is_passing(self, error: Exception) -> bool:
        """Whether a repeated call may succeed. Raises ConfigurationError for a refusal that stays."""
        if isinstance(error, PermissionError):
            raise self.refused(error) from error
        return isinstance(error, OSError)

    @abstractmethod
    def _sizes(self, beginning: str) -> dict[str, int]: ...

    @abstractmethod
    def _read(self, names: list[str]) -> dict[str, bytes]: ...

    @abstractmethod
    def _download(self, name: str, to: Path) -> bool: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _upload(self, files: Mapping[str, Path]) -> None: ...

    @abstractmethod
    def _remove(self, names: Collection[str]) -> None: ...
