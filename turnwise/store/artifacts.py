"""Artifacts: folders named by the digest of their content, written whole or not at all, read only when intact.

    store/<kind>/<digest>/manifest.json, data files     the artifact; the digest covers these and nothing else
    store/<kind>/<digest>.clock.json                    what a clock or a machine said: seconds, tokens/s, memory
    store/<kind>/<digest>.lineage/<key>.json            how the content came about, one file per way to produce it
    store/.drafts/                                      folders that are being written

The digest is that of the manifest: the kind, every file's SHA-256 and size, and the metrics. How the content came about
(inputs, parameters, code) stands beside it, not in it: a producer that was rewritten and yields the same bytes changes
no digest, and nothing after it runs again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.errors import ArtifactError
from turnwise.places import home
from turnwise.store.atomic_write import sync, write_durably
from turnwise.store.manifest import KIND, MANIFEST, Draft, Manifest, Reference, describe, sha256_of

DRAFTS = ".drafts"
ABANDONED_AFTER_SECONDS = 24 * 3600.0


class Store:
    """The folder that holds all artifacts of one home. Any number of processes may read and write it at once."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._verified: dict[Reference, tuple[tuple[str, int, int], ...]] = {}
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
        draft = Draft(kind, folder)
        try:
            yield draft
            manifest = describe(draft)
            write_durably(folder / MANIFEST, json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True))
            for subfolder in [path for path in folder.rglob("*") if path.is_dir()]:
                sync(subfolder)
            sync(folder)
            self._publish(folder, manifest.reference)
            draft._reference = manifest.reference
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def folder(self, reference: Reference) -> Path:
        """Where the artifact's files lie. Verified once per process, and again when a file's time or size changes.

        Raises:
            ArtifactError: it is missing or damaged.
        """
        if self._verified.get(reference) != self._state(reference):
            self.verify(reference)
        return self._path(reference)

    def verify(self, reference: Reference) -> None:
        """Read every file and compare it with the manifest, and the manifest with the digest.

        Raises:
            ArtifactError: it is missing or damaged.
        """
        self._verified.pop(reference, None)
        state = self._state(reference)
        manifest = self.manifest(reference)
        folder = self._path(reference)
        found = {name for name, _, _ in state} - {MANIFEST}
        for name in sorted(found ^ set(manifest.files)):
            what = "is missing" if name in manifest.files else "does not belong to it"
            raise _damaged(reference, folder, f"the file {name} {what}")
        for name, entry in manifest.files.items():
            if (folder / name).stat().st_size != entry.bytes or sha256_of(folder / name) != entry.sha256:
                raise _damaged(reference, folder, f"the content of {name} is not what was written")
        self._verified[reference] = state

    def holds(self, reference: Reference) -> bool:
        """Whether the artifact is there and intact."""
        try:
            self.folder(reference)
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
        """What a clock or a machine said when the artifact was made (seconds, tokens/s, bytes); may be empty."""
        path = self._beside(reference, ".clock.json")
        return json.loads(path.read_bytes()) if path.exists() else {}

    def record_clock(self, reference: Reference, seconds: Mapping[str, float]) -> None:
        """Add to `clock`; a number recorded before under the same name is replaced."""
        _write_json(self._beside(reference, ".clock.json"), {**self.clock(reference), **seconds}, self._draft_path())

    def lineage(self, reference: Reference) -> dict[str, dict[str, Any]]:
        """Every way in which this content was produced, by the digest of the cache key."""
        folder = self._beside(reference, ".lineage")
        return {path.stem: json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}

    def record_lineage(self, reference: Reference, key: str, record: Mapping[str, Any]) -> None:
        """Add one way in which this content was produced: task, parameters, inputs, code."""
        folder = self._beside(reference, ".lineage")
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / f"{key}.json", dict(record), self._draft_path())

    def _path(self, reference: Reference) -> Path:
        return self.root / reference.kind / reference.digest

    def _beside(self, reference: Reference, suffix: str) -> Path:
        return self.root / reference.kind / f"{reference.digest}{suffix}"

    def _draft_path(self) -> Path:
        (self.root / DRAFTS).mkdir(parents=True, exist_ok=True)
        return self.root / DRAFTS / uuid.uuid4().hex

    def _state(self, reference: Reference) -> tuple[tuple[str, int, int], ...]:
        """Name, time and size of every file: cheap to look at, and different when somebody has touched one."""
        folder = self._path(reference)
        files = [(path, path.lstat()) for path in folder.rglob("*") if not path.is_dir()]
        return tuple(sorted((path.relative_to(folder).as_posix(), at.st_mtime_ns, at.st_size) for path, at in files))

    def _publish(self, draft: Path, reference: Reference) -> None:
        """Rename the draft to its final name; what lies there already stays when intact, and makes way when not."""
        final = self._path(reference)
        final.parent.mkdir(parents=True, exist_ok=True)
        while not _renamed(draft, final):
            if self.holds(reference):
                return
            with suppress(FileNotFoundError):
                os.rename(final, damaged := self._draft_path())
                shutil.rmtree(damaged)
        sync(final.parent)
        self._verified[reference] = self._state(reference)

    def _remove_abandoned_drafts(self) -> None:
        """A killed writer leaves its draft behind; a day later nobody is writing it any more."""
        drafts = self.root / DRAFTS
        for path in drafts.iterdir() if drafts.is_dir() else []:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def default_store() -> Store:
    """The store of the present home; one object per folder and process, so that nothing is verified twice."""
    return _store_at(home() / "store")


@cache
def _store_at(root: Path) -> Store:
    return Store(root)


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


def _write_json(path: Path, value: Mapping[str, Any], temporary: Path) -> None:
    """Write JSON so that a reader finds the old text or the new one."""
    write_durably(temporary, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False))
    os.replace(temporary, path)
