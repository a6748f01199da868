"""Artifacts: folders named by the digest of their content, written whole or not at all, read only when intact.

    store/<kind>/<digest>/manifest.json, data files     the artifact; the digest covers these and nothing else
    store/<kind>/<digest>.clock.json                    what a clock or a machine said: seconds, tokens/s, memory
    store/<kind>/<digest>.lineage/<key>.json            how the content came about, one file per way to produce it
    store/<kind>/<digest>.pruned.json                   the data files that were removed on purpose
    store/.verified/                                    what was found intact, and in what state: costs time when lost
    store/.drafts/                                      folders that are being written

The digest is that of the manifest: the kind, every file's SHA-256 and size, and the metrics. How the content came about
(inputs, parameters, code) stands beside it, not in it: a producer that was rewritten and yields the same bytes changes
no digest, and nothing after it runs again.

An artifact whose data files were pruned is there all the same: its manifest and all that stands beside it stay. Whoever
asks for a file that is gone has it made again, to the same content.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.errors import ArtifactError
from turnwise.store import pruning
from turnwise.store.atomic_write import grant, sync, write_durably
from turnwise.store.index import VerifiedIndex, state_of
from turnwise.store.manifest import KIND, MANIFEST, Draft, Manifest, Reference, describe, sha256_of
from turnwise.store.notes import Clock, Lineage, read_note, write_note
from turnwise.store.paths import home

DRAFTS = ".drafts"
PRUNED = ".pruned.json"
EVERYTHING = ("*",)
ABANDONED_AFTER_SECONDS = 24 * 3600.0


MakeAgain = Callable[[Reference, Sequence[str]], None]
"""Makes these files of an artifact again, which were pruned."""


class Store:
    """The folder that holds all artifacts of one home. Any number of processes may read and write it at once."""

    def __init__(self, root: Path, make_again: MakeAgain | None = None) -> None:
        self.root = Path(root)
        self._make_again = make_again
        self._restored: dict[Reference, Collection[str]] = {}
        self._verified = VerifiedIndex(self.root)
        self._remove_abandoned_drafts()

    @contextmanager
    def write(self, kind: str) -> Iterator[Draft]:
        """A draft to fill; when the block ends without an error it becomes an artifact, otherwise nothing remains.

        Readers see all of it or nothing. Content that the store holds already is not stored twice.

        Raises:
            ArtifactError: the kind is no lower-case word; the draft holds what is no plain file, a file named as the
                manifest, or a metric that is not a finite number.
        """
        if not re.fullmatch(KIND, kind):
            raise ArtifactError(
                f"the kind of an artifact is a lower-case word, since it names a folder; it is {kind!r}"
            )
        folder = self.root / DRAFTS / uuid.uuid4().hex
        folder.mkdir(parents=True)
        granted = stat.S_IMODE(folder.stat().st_mode)
        draft = Draft(kind, folder)
        try:
            yield draft
            manifest = describe(draft)
            write_durably(folder / MANIFEST, json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True))
            grant(folder, granted)
            for subfolder in [path for path in folder.rglob("*") if path.is_dir()]:
                sync(subfolder)
            sync(folder)
            self._publish(folder, manifest.reference)
            draft._reference = manifest.reference
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def folder(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
        """Where the artifact's files lie. They are read when the store's index does not know them to be intact in the
        state in which they are: after any process has touched or replaced one.

        `needed` are patterns of the files that will be read (`model*`): those that were pruned are made again first.

        Raises:
            ArtifactError: it is missing or damaged, or what is needed cannot be made again.
        """
        with pruning.shared(self._path(reference)):
            self._require_intact(reference)
            if gone := self.pruned(reference, needed):
                if self._make_again is None:
                    raise _not_made_again(reference, gone)
                self._make_again(reference, gone)
                self._require_intact(reference)
                if gone := self.pruned(reference, needed):
                    raise _not_made_again(reference, gone)
        return self._path(reference)

    def pruned(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> list[str]:
        """The files that were pruned, of those that a pattern of `needed` names.

        Raises:
            ArtifactError: the manifest is missing or damaged.
        """
        if not self._beside(reference, PRUNED).exists():
            return []
        folder = self._path(reference)
        return [
            name
            for name in self.manifest(reference).files
            if any(fnmatchcase(name, pattern) for pattern in needed) and not (folder / name).exists()
        ]

    def prune(self, reference: Reference, files: Sequence[str]) -> int:
        """Remove the files that these patterns name and return their bytes; manifest, metrics and lineage stay.

        A file that is being read (see `reading`) stays too, and so do all of the artifact's.

        Raises:
            ArtifactError: the manifest is missing or damaged.
        """
        folder = self._path(reference)
        with pruning.alone(folder) as nobody_reads:
            named = self.manifest(reference).files if nobody_reads else {}
            names = [name for name in named if any(fnmatchcase(name, pattern) for pattern in files)]
            names = [name for name in names if (folder / name).exists()]
            if not names:
                return 0
            intact = self._verified.vouches_for(reference, state_of(folder))
            record = self._beside(reference, PRUNED)
            gone = pruning.PrunedFiles(files=tuple(sorted(pruning.recorded_in(record).union(names))))
            write_note(record, gone.model_dump(mode="json"), self._draft_path())
            sync(record.parent)
            for name in names:
                (folder / name).unlink()
            if intact:
                self._verified.add(reference, state_of(folder), self._draft_path())
            return sum(named[name].bytes for name in names)

    @contextmanager
    def restoring(self, reference: Reference, files: Collection[str]) -> Iterator[None]:
        """While the block runs, writing this content again puts back these of its pruned files, and no others."""
        self._restored[reference] = files
        try:
            yield
        finally:
            del self._restored[reference]

    def verify(self, reference: Reference) -> None:
        """Read every file, whatever the index says, and compare it with the manifest, and that with the digest. Pruned
        files may be missing.

        Raises:
            ArtifactError: it is missing or damaged.
        """
        with pruning.shared(self._path(reference)):
            self._read_all(reference)

    def _read_all(self, reference: Reference) -> None:
        self._verified.remove(reference)
        state = state_of(self._path(reference))
        manifest = self.manifest(reference)
        folder = self._path(reference)
        found = {file.name for file in state} - {MANIFEST}
        pruned = pruning.recorded_in(self._beside(reference, PRUNED)) - found
        for name in sorted((found | pruned) ^ set(manifest.files)):
            what = "is missing" if name in manifest.files else "does not belong to it"
            raise _damaged(reference, folder, f"the file {name} {what}")
        for name, entry in manifest.files.items():
            if name in pruned:
                continue
            if (folder / name).stat().st_size != entry.bytes or sha256_of(folder / name) != entry.sha256:
                raise _damaged(reference, folder, f"the content of {name} is not what was written")
        self._verified.add(reference, state, self._draft_path())

    def holds(self, reference: Reference) -> bool:
        """Whether the artifact is there and intact, but for files that were pruned."""
        try:
            self.folder(reference, needed=())
        except ArtifactError:
            return False
        return True

    def manifest(self, reference: Reference) -> Manifest:
        """What the artifact consists of, checked against its digest.

        Raises:
            ArtifactError: the manifest is missing or damaged.
        """
        path = self._path(reference) / MANIFEST
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
            described = manifest.reference
        except FileNotFoundError as error:
            raise ArtifactError(
                f"the artifact {reference} must be in the store {self.root}; it is not there: run the experiment "
                "again, which computes what is missing"
            ) from error
        except ValueError as error:
            raise _damaged(reference, path.parent, "its manifest cannot be read") from error
        if described != reference:
            raise _damaged(reference, path.parent, f"its manifest is that of {described}")
        return manifest

    def metrics(self, reference: Reference) -> dict[str, float]:
        """The numbers that belong to the artifact's content (success, losses): the same wherever it is computed."""
        return dict(self.manifest(reference).metrics)

    def clock(self, reference: Reference) -> dict[str, float]:
        """What a clock or a machine said when the artifact was made (seconds, tokens/s, bytes); may be empty, and is,
        with a warning, where the file is damaged.
        """
        return read_note(self._beside(reference, ".clock.json"), Clock) or {}

    def record_clock(self, reference: Reference, seconds: Mapping[str, float]) -> None:
        """Add to `clock`; a number recorded before under the same name is replaced."""
        write_note(self._beside(reference, ".clock.json"), {**self.clock(reference), **seconds}, self._draft_path())

    def lineage(self, reference: Reference) -> dict[str, dict[str, Any]]:
        """Every way in which this content was produced, by the digest of the cache key. One whose file is damaged is
        left out, with a warning.
        """
        files = sorted(self._beside(reference, ".lineage").glob("*.json"))
        notes = {path.stem: read_note(path, Lineage) for path in files}
        return {key: note for key, note in notes.items() if note is not None}

    def was_made_under(self, reference: Reference, key: str) -> bool:
        """Whether the store knows this content to have been produced by a call with this cache key's digest."""
        return (self._beside(reference, ".lineage") / f"{key}.json").is_file()

    def record_lineage(self, reference: Reference, key: str, record: Mapping[str, Any]) -> None:
        """Add one way in which this content was produced: task, parameters, inputs, code."""
        write_note(self._beside(reference, ".lineage") / f"{key}.json", record, self._draft_path())

    def _require_intact(self, reference: Reference) -> None:
        if not self._verified.vouches_for(reference, state_of(self._path(reference))):
            self.verify(reference)

    def _path(self, reference: Reference) -> Path:
        return self.root / reference.kind / reference.digest

    def _beside(self, reference: Reference, suffix: str) -> Path:
        return self.root / reference.kind / f"{reference.digest}{suffix}"

    def _draft_path(self) -> Path:
        (self.root / DRAFTS).mkdir(parents=True, exist_ok=True)
        return self.root / DRAFTS / uuid.uuid4().hex

    def _publish(self, draft: Path, reference: Reference) -> None:
        """Rename the draft to its final name; what lies there already stays when intact, and makes way when not."""
        final = self._path(reference)
        final.parent.mkdir(parents=True, exist_ok=True)
        while not _renamed(draft, final):
            if self.holds(reference):
                self._restore(draft, reference)
                return
            with suppress(FileNotFoundError):
                os.rename(final, damaged := self._draft_path())
                shutil.rmtree(damaged)
        sync(final.parent)
        self._verified.add(reference, state_of(final), self._draft_path())

    def _restore(self, draft: Path, reference: Reference) -> None:
        """Put back what was pruned of an artifact that has been written again."""
        final, wanted = self._path(reference), self._restored.get(reference)
        with pruning.shared(final):
            for name in self.pruned(reference):
                if wanted is None or name in wanted:
                    (final / name).parent.mkdir(exist_ok=True)
                    os.replace(draft / name, final / name)
                    sync((final / name).parent)

    def _remove_abandoned_drafts(self) -> None:
        """A killed writer leaves its draft behind; a day later nobody is writing it any more."""
        drafts = self.root / DRAFTS
        for path in drafts.iterdir() if drafts.is_dir() else []:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


_make_again: list[MakeAgain] = []


def when_pruned(make_again: MakeAgain) -> None:
    """Have this called when a file of the home's store is asked for that was pruned."""
    _make_again[:] = [make_again]


def default_store() -> Store:
    """The store of the present home; one object per folder and process, so that nothing is verified twice."""
    return _store_at(home() / "store")


@cache
def _store_at(root: Path) -> Store:
    def make_again(reference: Reference, files: Sequence[str]) -> None:
        if not _make_again:
            raise _not_made_again(reference, files)
        _make_again[0](reference, files)

    return Store(root, make_again)


def _renamed(draft: Path, final: Path) -> bool:
    """Whether the draft now has its final name; False when something lies there already."""
    try:
        os.rename(draft, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _damaged(reference: Reference, folder: Path, what: str) -> ArtifactError:
    return ArtifactError(
        f"the artifact {reference} must be what its digest says; {what}: delete {folder} and run the experiment again, "
        "which computes it anew"
    )


def _not_made_again(reference: Reference, files: Sequence[str]) -> ArtifactError:
    return ArtifactError(
        f"the files {', '.join(files)} of the artifact {reference} must be there to be read; they were pruned, and "
        "nothing in this process makes them again: ask for them with `turnwise restore`"
    )
