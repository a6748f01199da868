"""A place that several machines share: a folder, or a prefix of an S3 bucket. Files by name, each all or nothing.

    FolderPlace("/mnt/lab/turnwise")       a folder, e.g. of a network file system
    BucketPlace("s3://bucket/turnwise")    by s3fs; credentials, region and AWS_ENDPOINT_URL come from the environment

Every call is repeated while the place answers that it is busy (503), does not answer in time, or has not kept what it
was sent: with growing pauses, for `PATIENCE_SECONDS`. What is sent counts as kept when the place lists it with its
size.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnwise.errors import ConfigurationError, StoreUnreachable, first_line
from turnwise.store.atomic_write import sync
from turnwise.store.files import sizes_below

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
            sizes = self._sizes(beginning)
            return {name: path for name, path in files.items() if sizes.get(name) != lengths[name]}

        def upload_what_is_not_kept() -> None:
            nonlocal repeated
            # What was kept before something failed is not sent again.
            missing, repeated = (not_kept() if repeated else files), True
            if missing:
                self._upload(missing)
                if remaining := not_kept():
                    raise NotKept(f"{', '.join(remaining)} not kept whole")

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
                    raise StoreUnreachable(
                        f"the shared store {self.url} must answer within {PATIENCE_SECONDS:.0f} s; it does not "
                        f"({first_line(error)}): when it does, give the same command again, which goes on where "
                        "this one stopped",
                        "TW-store-unreachable",
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def refused(self, error: Exception) -> ConfigurationError:
        """The error for a place that does not exist, or refuses access."""
        return ConfigurationError(
            f"storage.url must name a folder or bucket that exists and may be read and written; {self.url}: "
            f"{first_line(error)}",
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


class FolderPlace(SharedPlace):
    """A folder that several machines have mounted. A file is written under another name, synced and renamed."""

    _DRAFTS = ".drafts"

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        self._root = Path(url)

    def require_writable(self) -> None:
        """Refuse a folder that is missing, e.g. because it is not mounted, or that cannot be written to."""
        if not self._root.is_dir():
            raise self.refused(FileNotFoundError("there is no such folder: make or mount it"))
        super().require_writable()

    def _sizes(self, beginning: str) -> dict[str, int]:
        folder, _, start = beginning.rpartition("/")
        sizes: dict[str, int] = {}
        parent = self._root / folder
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(parent) as entries:
            for entry in entries:
                if not entry.name.startswith(start) or entry.name.startswith("."):
                    continue
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    sizes.update({f"{name}/{path}": size for path, size in sizes_below(Path(entry.path))})
                else:
                    with suppress(FileNotFoundError):
                        sizes[name] = entry.stat().st_size
        return sizes

    def _read(self, names: list[str]) -> dict[str, bytes]:
        contents = {}
        for name in names:
            with suppress(FileNotFoundError):
                contents[name] = (self._root / name).read_bytes()
        return contents

    def _download(self, name: str, to: Path) -> bool:
        try:
            shutil.copyfile(self._root / name, to)
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._put(name, lambda draft: draft.write_bytes(content))

    def _upload(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._put(name, partial(shutil.copyfile, path))

    def _remove(self, names: Collection[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    def _put(self, name: str, write: Callable[[Path], Any]) -> None:
        draft, final = self._root / self._DRAFTS / uuid.uuid4().hex, self._root / name
        draft.parent.mkdir(exist_ok=True)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(draft)
            sync(draft)
            os.replace(draft, final)
        finally:
            draft.unlink(missing_ok=True)


S3 = "s3://"
SECONDS_TO_CONNECT, SECONDS_TO_ANSWER = 10, 60


class BucketPlace(SharedPlace):
    """A prefix of an S3 bucket. The server keeps an object whole or not at all; what it keeps is looked at."""

    def __init__(self, url: str) -> None:
        super().__init__(url.rstrip("/"))
        self._root = url.removeprefix(S3).strip("/")
        self._process_file_system: tuple[int, Any] | None = None
        _s3fs()  # refused now rather than at the first file

    @property
    def _files(self) -> Any:
        """The file system of this process: after a fork a new one, since its connections are the parent's."""
        if self._process_file_system is None or self._process_file_system[0] != os.getpid():
            timeouts = {"connect_timeout": SECONDS_TO_CONNECT, "read_timeout": SECONDS_TO_ANSWER}
            # Repeated in one place, `_patiently`; botocore would repeat each call of s3fs, which repeats it as well.
            file_system = _s3fs().S3FileSystem(
                skip_instance_cache=True,
                use_listings_cache=False,
                config_kwargs={**timeouts, "retries": {"max_attempts": 0}},
            )
            file_system.retries = 1
            self._process_file_system = (os.getpid(), file_system)
        return self._process_file_system[1]

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _is_passing(self, error: Exception) -> bool:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError, NoCredentialsError

        if isinstance(error, NoCredentialsError | FileNotFoundError):  # a missing object is an answer: see `_read`
            raise self.refused(error) from error
        return super()._is_passing(error) or isinstance(error, BotoCoreError | ClientError | TimeoutError)

    def _sizes(self, beginning: str) -> dict[str, int]:
        entries = self._files.find(self._root, prefix=beginning, detail=True)
        cut = len(self._root) + 1
        return {path[cut:]: entry["size"] for path, entry in entries.items()}

    def _read(self, names: list[str]) -> dict[str, bytes]:
        # `cat` would ask three times per file: whether it is there, how long it is, and for its content.
        paths = [self._at(name) for name in names]
        contents = self._files.cat_ranges(paths, None, None, on_error="return", max_concurrency=1)
        for content in contents:
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
        return {name: content for name, content in zip(names, contents, strict=True) if isinstance(content, bytes)}

    def _download(self, name: str, to: Path) -> bool:
        try:
            self._files.get_file(self._at(name), str(to))
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._files.pipe_file(self._at(name), content)

    def _upload(self, files: Mapping[str, Path]) -> None:
        self._files.put([str(path) for path in files.values()], [self._at(name) for name in files])

    def _remove(self, names: Collection[str]) -> None:
        if names:  # none would be an error
            self._files.rm([self._at(name) for name in names])


def _s3fs() -> Any:
    try:
        import s3fs
    except ImportError as error:
        raise ConfigurationError(
            f"storage.url on S3 needs s3fs, which cannot be imported ({error}): pip install 'turnwise[s3]'",
            "TW-missing-package",
        ) from error
    return s3fs
