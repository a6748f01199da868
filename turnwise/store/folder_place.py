"""A shared place that is a folder, which several machines have mounted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.store.atomic_write import sync
from turnwise.store.files import files_below
from turnwise.store.place import SharedPlace


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
        found: dict[str, int] = {}
        parent = self._root / folder
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(parent) as entries:
            for entry in entries:
                if not entry.name.startswith(start) or entry.name.startswith("."):
                    continue
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    below = files_below(Path(entry.path))
                    found.update({f"{name}/{path}": file.stat().st_size for path, file in below})
                else:
                    found[name] = entry.stat().st_size
        return found

    def _read(self, names: list[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = (self._root / name).read_bytes()
        return found

    def _download(self, name: str, to: Path) -> bool:
        try:
            _copy(self._root / name, to)
        except FileNotFoundError:
            return False
        return True

    def _write(self, name: str, content: bytes) -> None:
        self._put(name, lambda draft: draft.write_bytes(content))

    def _upload(self, files: Mapping[str, Path]) -> None:
        for name, path in files.items():
            self._put(name, partial(_copy, path))

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


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as write:
        while block := read.read(1 << 22):
            write.write(block)
