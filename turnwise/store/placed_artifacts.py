"""Artifacts in a shared place: their names there, which are those of a local store below `store/`, and their content.

An artifact is there when its manifest is, which is written last. A file that is twice read as something else than its
manifest says is removed, and remembered by this process, which replaces it when the artifact is written again.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from turnwise.errors import ArtifactError
from turnwise.store.atomic_write import sync
from turnwise.store.digests import sha256_of
from turnwise.store.manifest import KIND, MANIFEST, FileEntry, Manifest, Reference, manifest_of
from turnwise.store.place import SharedPlace
from turnwise.store.pruning import PRUNED, PrunedFiles, pruned_in

logger = logging.getLogger(__name__)

STORE, RESULTS = "store", "results"
"""The folders of a place: artifacts, and the records of what stages returned."""
_MANIFEST = re.compile(rf"{STORE}/({KIND.strip('^$')})/([0-9a-f]{{32}})/{re.escape(MANIFEST)}")


def name_of(reference: Reference, file: str) -> str:
    """The name of one file of an artifact."""
    return f"{STORE}/{reference}/{file}"


def name_of_note(reference: Reference, suffix: str) -> str:
    """The name of a note next to an artifact, such as `.clock.json`; those of its provenance begin with `.lineage/`."""
    return f"{STORE}/{reference}{suffix}"


def notes_among(reference: Reference, names: Iterable[str]) -> list[str]:
    """Of these names, an artifact's manifest and the notes next to it."""
    manifest, beside = name_of(reference, MANIFEST), f"{STORE}/{reference}."
    return [name for name in names if name == manifest or name.startswith(beside)]


def references_among(names: Mapping[str, int]) -> list[Reference]:
    """The artifacts whose manifests are among these names."""
    matches = (_MANIFEST.fullmatch(name) for name in names)
    return [Reference(kind=match[1], digest=match[2]) for match in matches if match]


class PlacedArtifacts:
    """The artifacts of a shared place, as one process sees them. Raises what `SharedPlace` does."""

    def __init__(self, place: SharedPlace) -> None:
        self._place = place
        self._distrusted: dict[Reference, set[str]] = {}
        """Files that were found damaged, and are replaced when their artifact is written again."""

    def sizes(self, reference: Reference) -> dict[str, int]:
        """The bytes of an artifact's files and of the notes next to it, by name."""
        return self._place.sizes(f"{STORE}/{reference}")

    def notes(self, reference: Reference, sizes: Iterable[str]) -> dict[str, bytes]:
        """Its manifest and notes, of those that the place holds, by name."""
        return self._place.read(notes_among(reference, sizes))

    def whole_manifest(self, reference: Reference, sizes: Mapping[str, int], content: Mapping[str, bytes]) -> Manifest:
        """Its manifest, if every file that it names is there in its length or was pruned.

        Args:
            reference: the artifact.
            sizes: as `sizes` says.
            content: as `notes` says.

        Raises:
            ArtifactError: it is damaged, or a part of it is missing.
        """
        try:
            manifest = manifest_of(reference, content.get(name_of(reference, MANIFEST), b""))
        except ValueError as error:
            self._distrusted.setdefault(reference, set()).add(MANIFEST)
            raise self._damaged(reference, "its manifest cannot be read") from error
        pruned = pruned_in(content.get(name_of_note(reference, PRUNED), b""))
        for name, entry in manifest.files.items():
            if name not in pruned and sizes.get(name_of(reference, name)) != entry.bytes:
                raise self._damaged(reference, f"the file {name} is missing or not whole")
        return manifest

    def download(self, reference: Reference, name: str, entry: FileEntry, to: Path) -> bool:
        """Copy a file to this path, synced. False if the place does not hold it, or holds something else."""
        try:
            for _ in range(2):
                if not self._place.download(name_of(reference, name), to):
                    return False
                if to.stat().st_size == entry.bytes and sha256_of(to) == entry.sha256:
                    sync(to)
                    return True
        except BaseException:
            to.unlink(missing_ok=True)
            raise
        to.unlink()
        logger.warning("%s", self._damaged(reference, f"the content of {name} is not what was written"))
        self._distrusted.setdefault(reference, set()).add(name)
        self._place.remove([name_of(reference, name)])
        return False

    def bring_up_to(self, manifest: Manifest, folder: Path, only_damaged: bool) -> None:
        """Upload what the place lacks or holds damaged of an artifact, then its manifest.

        Args:
            manifest: of the artifact.
            folder: with its files. Those that are neither there nor in the place are recorded as pruned.
            only_damaged: replaces files that this process has found damaged, and adds none that the place lacks.
        """
        reference = manifest.reference
        sizes, distrusted = self.sizes(reference), self._distrusted.get(reference, set())
        missing = [
            name
            for name, entry in manifest.files.items()
            if name in distrusted or (not only_damaged and sizes.get(name_of(reference, name)) != entry.bytes)
        ]
        here = [name for name in missing if (folder / name).exists()]
        self._place.upload(f"{STORE}/{reference}/", {name_of(reference, name): folder / name for name in here})
        if not only_damaged:
            if absent := set(missing) - set(here):
                self.record_pruned(reference, absent)
            if name_of(reference, MANIFEST) not in sizes or MANIFEST in distrusted:
                self._place.write(name_of(reference, MANIFEST), (folder / MANIFEST).read_bytes())
        self._distrusted.pop(reference, None)

    def pruned(self, reference: Reference) -> frozenset[str]:
        """The files that were removed on purpose and may be missing."""
        note = name_of_note(reference, PRUNED)
        return pruned_in(self._place.read([note]).get(note, b""))

    def record_pruned(self, reference: Reference, names: Collection[str]) -> None:
        """Record that these files may be missing, too."""
        files = PrunedFiles(files=tuple(sorted(self.pruned(reference).union(names))))
        content = json.dumps(files.model_dump(mode="json")).encode()
        self._place.write(name_of_note(reference, PRUNED), content)

    def _damaged(self, reference: Reference, what: str) -> ArtifactError:
        return ArtifactError(
            f"the artifact {reference} must be what its digest says in {self._place.url}; {what}: run the experiment "
            "again, which computes it again and replaces it",
            "TW-damaged-artifact",
        )
