"""The artifact store: folders named by the digest of their content, written atomically and verified before reading.

    store/<kind>/<digest>/manifest.json, data files     the artifact; the digest covers these and nothing else
    store/<kind>/<digest>.clock.json                    measurements of its computation: seconds, tokens/s, memory
    store/<kind>/<digest>.lineage/<key>.json            provenance, one file per way in which the content was produced
    store/<kind>/<digest>.pruned.json                   the data files that were removed on purpose
    store/.verified/                                    index of verified artifacts: losing it costs only time
    store/.drafts/                                      folders that are being written

The digest is that of the manifest: the kind, every file's SHA-256 and size, and the metrics. Provenance (inputs,
parameters, code) is stored next to the artifact and not in it: when a stage is rewritten and yields the same bytes, no
digest changes, and nothing downstream runs again.

A pruned artifact still counts as present: its manifest and everything next to it stay. Asking for a pruned file never
recomputes it, but raises; making it again is a call of its own (`turnwise.store.remaking.make_again`).
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from turnwise.errors import ArtifactError
from turnwise.store import pruning
from turnwise.store.atomic_write import grant, sync, write_durably
from turnwise.store.digests import sha256_of
from turnwise.store.files import folders_of, matching
from turnwise.store.index import VerifiedIndex, state_of
from turnwise.store.manifest import KIND, MANIFEST, Draft, Manifest, Reference, describe
from turnwise.store.notes import Clock, Lineage, read_note, write_note
from turnwise.store.place import SharedPlace
from turnwise.store.pruning import PRUNED

DRAFTS = ".drafts"
EVERYTHING = ("*",)
ABANDONED_AFTER_SECONDS = 24 * 3600.0
DIGEST = re.compile(r"[0-9a-f]{32}")


class Store:
    """The artifacts of one home, in the folder `root`. Any number of processes may read and write it at once."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.place: SharedPlace | None = None
        """The shared place that the artifacts are in, too: see `turnwise.store.shared`."""
        self._restored: dict[Reference, Collection[str]] = {}
        self._verified = VerifiedIndex(self.root)
        self._remove_abandoned_drafts()

    @contextmanager
    def write(self, kind: str) -> Iterator[Draft]:
        """A draft to fill: it becomes an artifact when the block ends, and is deleted if the block raises.

        Readers see the whole artifact or nothing. Content that the store already holds is not stored twice.

        Raises:
            ArtifactError: the kind is not a lower-case word; or the draft holds something other than a plain file, a
                file with the manifest's name, or a metric that is not a finite number.
        """
        if not re.fullmatch(KIND, kind):
            raise ArtifactError(
                f"the kind of an artifact is a lower-case word, since it names a folder; it is {kind!r}",
                "TW-artifact-kind",
            )
        folder = self.root / DRAFTS / uuid.uuid4().hex
        folder.mkdir(parents=True)
        mode = stat.S_IMODE(folder.stat().st_mode)
        draft = Draft(kind, folder)
        try:
            yield draft
            manifest = describe(draft)
            # All is on the disk before the rename: a crash leaves a draft, never half an artifact.
            write_durably(folder / MANIFEST, json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True))
            grant(folder, mode)
            for each in folders_of(folder):
                sync(each)
            self._publish(folder, manifest.reference)
            draft._reference = manifest.reference
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def folder(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
        """The folder of an intact artifact, with the needed files present.

        Files are hashed only where the index does not have them as verified, e.g. after one was touched or replaced.
        Nothing is computed.

        Raises:
            ArtifactError: the artifact is missing or damaged, or a file that matches a pattern of `needed` (e.g.
                `model*`) was pruned.
        """
        with pruning.shared(self._path(reference)):
            self._require_intact(reference)
            if absent := self._absent(reference, needed):
                raise not_made_again(reference, absent)
        return self._path(reference)

    def references(self, kind: str = "*", beginning: str = "") -> list[Reference]:
        """The artifacts of a kind whose digests begin so, sorted; by default all that the store holds."""
        folders = (path.parent for path in self.root.glob(f"{kind}/{beginning}*/{MANIFEST}"))
        names = sorted((path.parent.name, path.name) for path in folders if not path.parent.name.startswith("."))
        return [Reference(kind=kind, digest=digest) for kind, digest in names if DIGEST.fullmatch(digest)]

    def pruned(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> list[str]:
        """The names of the pruned files that match a pattern of `needed`.

        Raises:
            ArtifactError: some files were pruned, and the manifest is missing or damaged.
        """
        return self._absent(reference, needed)

    def _absent(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> list[str]:
        """The names of the files that match a pattern of `needed` and are not in the artifact's folder, as recorded."""
        if not self._beside(reference, PRUNED).exists():
            return []
        folder = self._path(reference)
        return [name for name in matching(self.manifest(reference).files, needed) if not (folder / name).exists()]

    def prune(self, reference: Reference, files: Sequence[str]) -> int:
        """Remove the files that match these patterns, and return the bytes freed; manifest and notes stay.

        Removes nothing and returns 0 where the artifact is missing, or while anybody reads it (`pruning.reading`).

        Raises:
            ArtifactError: the manifest is missing or damaged.
        """
        with pruning.alone(self._path(reference)) as nobody_reads:
            return self._remove(reference, files) if nobody_reads else 0

    def _remove(self, reference: Reference, files: Sequence[str]) -> int:
        """Remove the files that match these patterns from the artifact's folder, which is locked; the bytes freed."""
        folder, entries = self._path(reference), self.manifest(reference).files
        names = [name for name in matching(entries, files) if (folder / name).exists()]
        if not names:
            return 0
        intact = self._verified.vouches_for(reference, state_of(folder))
        # First the record, then the files: after a kill in between, no file is missing that is not named.
        self._record_absent(reference, names)
        sync(folder.parent)
        for name in names:
            (folder / name).unlink()
        if intact:
            self._verified.add(reference, state_of(folder), self._draft_path())
        return sum(entries[name].bytes for name in names)

    def _record_absent(self, reference: Reference, names: Iterable[str]) -> None:
        """Note that these files, too, are not in the artifact's folder."""
        record = self._beside(reference, PRUNED)
        pruned_files = pruning.PrunedFiles(files=tuple(sorted(pruning.recorded_in(record).union(names))))
        write_note(record, pruned_files.model_dump(mode="json"), self._draft_path())

    @contextmanager
    def restoring(self, reference: Reference, files: Collection[str]) -> Iterator[None]:
        """Within the block, rewriting this artifact puts back these of its pruned files and no others.

        Without it, rewriting an artifact puts back all its pruned files.
        """
        self._restored[reference] = files
        try:
            yield
        finally:
            del self._restored[reference]

    def verify(self, reference: Reference) -> None:
        """Check all files but pruned ones against the manifest, and that against the digest, not trusting the index.

        Raises:
            ArtifactError: the artifact is missing or damaged.
        """
        folder = self._path(reference)
        with pruning.shared(folder):
            self._verified.remove(reference)
            # Taken before the reading, so that a file that changes meanwhile is not vouched for.
            state = state_of(folder)
            files = self.manifest(reference).files
            present = {file.name for file in state} - {MANIFEST}
            pruned = pruning.recorded_in(self._beside(reference, PRUNED)) - present
            for name in sorted((present | pruned) ^ set(files)):
                what = "is missing" if name in files else "does not belong to it"
                raise damaged(reference, folder, f"the file {name} {what}")
            for name, entry in ((name, entry) for name, entry in files.items() if name not in pruned):
                if (folder / name).stat().st_size != entry.bytes or sha256_of(folder / name) != entry.sha256:
                    raise damaged(reference, folder, f"the content of {name} is not what was written")
            self._verified.add(reference, state, self._draft_path())

    def holds(self, reference: Reference) -> bool:
        """Whether the artifact is present and intact; pruned files do not count."""
        try:
            self.folder(reference, needed=())
        except ArtifactError:
            return False
        return True

    def manifest(self, reference: Reference) -> Manifest:
        """The artifact's manifest, checked against its digest.

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
                "again, which computes what is missing",
                "TW-no-artifact",
            ) from error
        except ValueError as error:
            raise damaged(reference, path.parent, "its manifest cannot be read") from error
        if described != reference:
            raise damaged(reference, path.parent, f"its manifest is that of {described}")
        return manifest

    def metrics(self, reference: Reference) -> dict[str, float]:
        """The metrics in the artifact's content (success, losses), covered by its digest. Raises as `manifest` does."""
        return dict(self.manifest(reference).metrics)

    def clock(self, reference: Reference) -> dict[str, float]:
        """Measurements taken when the artifact was made (seconds, tokens/s, bytes), not covered by its digest.

        Empty where none were recorded, and, with a warning, where the file is damaged.
        """
        return read_note(self._beside(reference, ".clock.json"), Clock) or {}

    def record_clock(self, reference: Reference, seconds: Mapping[str, float]) -> None:
        """Add measurements to `clock`; one that was recorded under the same name is replaced."""
        write_note(self._beside(reference, ".clock.json"), {**self.clock(reference), **seconds}, self._draft_path())

    def lineage(self, reference: Reference) -> dict[str, dict[str, Any]]:
        """The provenance of an artifact: every way in which its content was produced, by the digest of the cache key.

        A record whose file is damaged is left out, with a warning.
        """
        files = sorted(self._beside(reference, ".lineage").glob("*.json"))
        notes = {path.stem: read_note(path, Lineage) for path in files}
        return {key: note for key, note in notes.items() if note is not None}

    def was_made_under(self, reference: Reference, key: str) -> bool:
        """Whether this content is recorded as the result of a call whose cache key has this digest."""
        return (self._beside(reference, ".lineage") / f"{key}.json").is_file()

    def record_lineage(self, reference: Reference, key: str, record: Mapping[str, Any]) -> None:
        """Add a provenance record: one way in which this content was produced (stage, parameters, inputs, code)."""
        write_note(self._beside(reference, ".lineage") / f"{key}.json", record, self._draft_path())

    def _is_intact_here(self, reference: Reference) -> bool:
        """Whether the artifact's folder is there and intact; pruned files do not count."""
        with pruning.shared(self._path(reference)):
            try:
                self._require_intact(reference)
            except ArtifactError:
                return False
        return True

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
        """Rename the draft to its final name. An intact artifact already there stays; a damaged one is replaced."""
        final = self._path(reference)
        final.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                os.rename(draft, final)
                break
            except OSError as error:
                # A folder cannot be renamed onto one with files: another writer of the same content came first.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self._is_intact_here(reference):
                self._restore(draft, reference)
                return
            with suppress(FileNotFoundError):  # renamed away first: nobody may read a folder that is half deleted
                os.rename(final, trash := self._draft_path())
                shutil.rmtree(trash)
        sync(final.parent)
        self._verified.add(reference, state_of(final), self._draft_path())

    def _restore(self, draft: Path, reference: Reference) -> None:
        """Move the pruned files of a rewritten artifact from the draft into its folder: see `restoring`."""
        final, wanted = self._path(reference), self._restored.get(reference)
        with pruning.shared(final):
            for name in self._absent(reference):
                if wanted is None or name in wanted:
                    (final / name).parent.mkdir(exist_ok=True)
                    os.replace(draft / name, final / name)
                    sync((final / name).parent)

    def _remove_abandoned_drafts(self) -> None:
        """Delete drafts older than a day, which killed writers left behind: nobody writes one for that long."""
        drafts = self.root / DRAFTS
        for path in drafts.iterdir() if drafts.is_dir() else []:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def damaged(reference: Reference, folder: Path, what: str) -> ArtifactError:
    """The error for an artifact in this folder whose content is not what its digest says."""
    return ArtifactError(
        f"the artifact {reference} must be what its digest says; {what}: delete {folder} and run the experiment again, "
        "which computes it again",
        "TW-damaged-artifact",
    )


def not_made_again(reference: Reference, files: Sequence[str]) -> ArtifactError:
    """The error for files that were pruned. Who asks for them does not compute them."""
    return ArtifactError(
        f"the files {', '.join(files)} of the artifact {reference} must be there to be read; they were pruned: "
        f"`turnwise restore {reference}` makes them again",
        "TW-pruned",
    )
