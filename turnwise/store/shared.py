"""A store that several machines share: the local store, kept equal to a shared place (`turnwise.store.place`).

    PLACE/store/<kind>/<digest>/...               as in a local store: artifacts, and their notes next to them
    PLACE/results/<stage>/<digest of the key>     the records of what stages returned

What is written goes into both, first the files, then the manifest: an artifact whose manifest is not there is none. The
local store is the cache: it knows every artifact that was asked for by its manifest and notes, and holds the files that
were needed. Files that it lacks are named in its own record of pruned files, so that it is a whole store by itself;
here they are downloaded and verified before any is computed again. A file of the place that is not what its manifest
says is removed there, and counts as lost: it is computed again and replaced.

Two writers of one artifact write the same bytes under the same names. A reader on another machine whose file is pruned
in the place meanwhile computes it again, as everyone does who needs it later.

Where the cache has a bound, what is freed is what was used the least recently.
An artifact was last used when it was last opened, which is kept as the time of its entry in the index of verified
artifacts. What was opened a moment ago stays, since its reader may not have come to its files yet.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.errors import ArtifactError
from turnwise.store import pruning
from turnwise.store.artifacts import EVERYTHING, Store, not_made_again
from turnwise.store.atomic_write import sync
from turnwise.store.files import matching, sizes_below
from turnwise.store.index import INDEX, state_of
from turnwise.store.manifest import MANIFEST, FileEntry, Manifest, Reference
from turnwise.store.notes import write_note
from turnwise.store.place import SharedPlace
from turnwise.store.placed_artifacts import STORE, PlacedArtifacts, name_of, name_of_note, notes_among, references_among
from turnwise.store.pruning import PRUNED

logger = logging.getLogger(__name__)

CLOCK = ".clock.json"


class SharedStore(Store):
    """The store in the folder `root`, whose artifacts are also in a shared place: see the module.

    Args:
        root: of the local store.
        place: the shared place.
        most_bytes: what the files of the local store may take; what was used longest ago makes room. None: no bound.
    """

    def __init__(self, root: Path, place: SharedPlace, most_bytes: int | None = None) -> None:
        super().__init__(root)
        self.place: SharedPlace = place
        self._there = PlacedArtifacts(place)
        self._room = CacheRoom(self.root, most_bytes)
        self._read_lineage: set[Reference] = set()

    def folder(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> Path:
        """As `Store.folder`; files that are not here are downloaded."""
        self._learn(reference)
        if not self._is_intact_here(reference):
            self._replace_from_place(reference)
        with pruning.shared(self._path(reference)):
            super().folder(reference, needed=())
            if absent := self._absent(reference, needed):
                if missing := self._download(reference, absent):
                    # Known by its manifest it would count as held; forgotten, the stage that made it makes it again.
                    if set(missing) - self._there.pruned(reference):
                        self._forget(reference)
                    raise not_made_again(reference, missing)
                entries = self.manifest(reference).files
                self._make_room(entries[name] for name in absent)
        self._verified.touch(reference)
        return self._path(reference)

    def references(self, kind: str = "*", beginning: str = "") -> list[Reference]:
        """As `Store.references`, of this store and of the place; manifests and notes that are new here are read."""
        sizes = self.place.sizes(f"{STORE}/" if kind == "*" else f"{STORE}/{kind}/{beginning}")
        there = [each for each in references_among(sizes) if each.digest.startswith(beginning)]
        self._learn_all([each for each in there if not self._knows(each)], sizes)
        known = [each for each in there if self._knows(each)]
        self._write_notes(self.place.read(name for each in known for name in self._new_lineage(each, sizes)))
        self._read_lineage.update(known)
        return sorted({*super().references(kind, beginning), *known}, key=lambda each: (each.kind, each.digest))

    def manifest(self, reference: Reference) -> Manifest:
        """As `Store.manifest`; an artifact that is not known here is looked for in the place."""
        self._learn(reference)
        return super().manifest(reference)

    def pruned(self, reference: Reference, needed: Sequence[str] = EVERYTHING) -> list[str]:
        """As `Store.pruned`: the files that are neither here nor in the place."""
        self._learn(reference)
        absent = self._absent(reference, needed)
        sizes = self._there.sizes(reference) if absent else {}
        return [name for name in absent if name_of(reference, name) not in sizes]

    def prune(self, reference: Reference, files: Sequence[str]) -> int:
        """As `Store.prune`, here and in the place."""
        self._learn_if_there(reference)
        return super().prune(reference, files)

    def _remove(self, reference: Reference, files: Sequence[str]) -> int:
        entries = self.manifest(reference).files
        names = matching(entries, files)
        here = {name for name in names if (self._path(reference) / name).exists()}
        sizes = self._there.sizes(reference) if names else {}
        there = {name for name in names if name_of(reference, name) in sizes}
        if there:
            # First the record, then the files, as in the local store.
            self._there.record_pruned(reference, there)
            self.place.remove([name_of(reference, name) for name in sorted(there)])
        super()._remove(reference, files)
        return sum(entries[name].bytes for name in here | there)

    def clock(self, reference: Reference) -> dict[str, float]:
        """As `Store.clock`."""
        self._learn_if_there(reference)
        return super().clock(reference)

    def record_clock(self, reference: Reference, seconds: Mapping[str, float]) -> None:
        """As `Store.record_clock`, here and in the place; of two machines that record, the later one's stays."""
        super().record_clock(reference, seconds)
        self._share_note(reference, CLOCK)

    def lineage(self, reference: Reference) -> dict[str, dict[str, Any]]:
        """As `Store.lineage`, with what other machines have recorded until it was first asked for."""
        self._learn_if_there(reference)
        if reference not in self._read_lineage:
            self._read_lineage.add(reference)
            sizes = self.place.sizes(name_of_note(reference, ".lineage/"))
            self._write_notes(self.place.read(self._new_lineage(reference, sizes)))
        return super().lineage(reference)

    def was_made_under(self, reference: Reference, key: str) -> bool:
        """As `Store.was_made_under`, with what other machines have recorded."""
        if super().was_made_under(reference, key):
            return True
        self._learn_if_there(reference)
        if not super().was_made_under(reference, key):
            self._write_notes(self.place.read([name_of_note(reference, f".lineage/{key}.json")]))
        return super().was_made_under(reference, key)

    def record_lineage(self, reference: Reference, key: str, record: Mapping[str, Any]) -> None:
        """As `Store.record_lineage`, here and in the place."""
        super().record_lineage(reference, key, record)
        self._share_note(reference, f".lineage/{key}.json")

    def _knows(self, reference: Reference) -> bool:
        return (self._path(reference) / MANIFEST).exists()

    def _learn(self, reference: Reference) -> None:
        """Read an artifact's manifest and notes from the place, unless they are here; nothing if it is not there.

        Raises:
            ArtifactError: the place holds a part of it, or other content.
        """
        if not self._knows(reference):
            sizes = self._there.sizes(reference)
            if name_of(reference, MANIFEST) in sizes:
                self._keep_known(reference, sizes, self._there.notes(reference, sizes))

    def _learn_if_there(self, reference: Reference) -> None:
        """As `_learn`; a damaged one counts as not being there, until somebody asks for its files."""
        with suppress(ArtifactError):
            self._learn(reference)

    def _learn_all(self, references: Sequence[Reference], sizes: Mapping[str, int]) -> None:
        content = self.place.read(name for each in references for name in notes_among(each, sizes))
        for reference in references:
            try:
                self._keep_known(reference, sizes, content)
            except ArtifactError as error:
                logger.warning("%s", error)

    def _keep_known(self, reference: Reference, sizes: Mapping[str, int], content: Mapping[str, bytes]) -> None:
        """Write the manifest and the notes that were read, and record all other files as not being here."""
        manifest = self._there.whole_manifest(reference, sizes, content)
        draft = self._draft_path()
        draft.mkdir()
        try:
            (draft / MANIFEST).write_bytes(content[name_of(reference, MANIFEST)])
            sync(draft / MANIFEST)
            notes = [name for name in notes_among(reference, sizes) if name in content]
            self._write_notes({name: content[name] for name in notes if not name.endswith((MANIFEST, PRUNED))})
            self._record_absent(reference, manifest.files)
            try:
                os.rename(draft, self._path(reference))
            except OSError:
                if not self._knows(reference):  # else another process came first
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._verified.add(reference, state_of(self._path(reference)), self._draft_path())

    def _write_notes(self, content: Mapping[str, bytes]) -> None:
        """Write notes that were read from the place, by name there, to where they lie here."""
        for name, text in content.items():
            try:
                note = json.loads(text)
            except ValueError as error:
                logger.warning("%s in %s cannot be read and is left out: %s", name, self.place.url, error)
                continue
            write_note(self.root / name.removeprefix(f"{STORE}/"), note, self._draft_path())

    def _new_lineage(self, reference: Reference, sizes: Mapping[str, int]) -> list[str]:
        names = [name for name in sizes if name.startswith(name_of_note(reference, ".lineage/"))]
        return [name for name in names if not (self.root / name.removeprefix(f"{STORE}/")).exists()]

    def _share_note(self, reference: Reference, suffix: str) -> None:
        self.place.write(name_of_note(reference, suffix), self._beside(reference, suffix).read_bytes())

    def _replace_from_place(self, reference: Reference) -> None:
        """Replace an artifact that is damaged here by what the place holds, if it does."""
        if name_of(reference, MANIFEST) in self._there.sizes(reference):
            logger.warning("%s is damaged in %s; it is read from %s again", reference, self.root, self.place.url)
            self._forget(reference)
            self._learn(reference)

    def _forget(self, reference: Reference) -> None:
        """Remove an artifact here. It is renamed first, so that nobody reads a half of it."""
        self._verified.remove(reference)
        with suppress(FileNotFoundError):
            os.rename(self._path(reference), trash := self._draft_path())
            shutil.rmtree(trash)

    def _download(self, reference: Reference, names: Sequence[str]) -> list[str]:
        """Put these files of an artifact into its folder, which is locked; those that the place lacks."""
        folder, entries = self._path(reference), self.manifest(reference).files
        intact = self._verified.vouches_for(reference, state_of(folder))
        missing = []
        for name in names:
            draft = self._draft_path()
            if self._there.download(reference, name, entries[name], draft):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(draft, folder / name)
            else:
                missing.append(name)
        if intact:
            self._verified.add(reference, state_of(folder), self._draft_path())
        return missing

    def _publish(self, draft: Path, reference: Reference) -> None:
        super()._publish(draft, reference)
        with pruning.shared(self._path(reference)):
            manifest, restoring = self.manifest(reference), reference in self._restored
            self._there.bring_up_to(manifest, self._path(reference), only_damaged=restoring)
        self._make_room(manifest.files.values())

    def _make_room(self, added: Iterable[FileEntry]) -> None:
        """Remove files here that the place holds, of artifacts used longest ago, where there are too many bytes."""
        for each in self._room.to_free(sum(entry.bytes for entry in added)):
            with pruning.alone(self._path(each)) as nobody_reads:
                if nobody_reads:
                    entries, sizes = self.manifest(each).files, self._there.sizes(each)
                    there = [name for name in entries if sizes.get(name_of(each, name)) == entries[name].bytes]
                    self._room.freed(super()._remove(each, there))


STAYS_FOR_SECONDS = 60.0
"""For so long after it was opened an artifact stays, whoever holds no lock on it."""
LOOKED_AT_AGAIN = 0.05
"""Share of the bound that a process adds before it looks again at what all processes have added."""


class Cached(NamedTuple):
    """An artifact in the local store."""

    used: float
    """When it was last opened, in seconds since the epoch; 0 where that is not known."""
    reference: Reference
    bytes: int
    """Of its files; the manifest, which always stays, does not count."""


def cached(root: Path) -> list[Cached]:
    """The artifacts of a local store that hold files, the least recently used first."""
    artifacts = []
    for folder in root.glob("[a-z]*/*/"):
        if "." in folder.name:
            continue
        size = sum(size for name, size in sizes_below(folder) if name != MANIFEST)
        if size:
            used = 0.0
            with suppress(FileNotFoundError):
                used = (root / INDEX / folder.parent.name / folder.name).stat().st_mtime
            artifacts.append(Cached(used, Reference(kind=folder.parent.name, digest=folder.name), size))
    return sorted(artifacts, key=lambda each: (each.used, str(each.reference)))


class CacheRoom:
    """What one process has added to the local store since it last looked whether that is too much."""

    def __init__(self, root: Path, most_bytes: int | None) -> None:
        self._root, self._most = root, most_bytes
        self._added: float = float("inf")  # what earlier processes have left
        self._over = 0

    def to_free(self, added: int) -> Iterator[Reference]:
        """After so many bytes were added: artifacts to free, until `freed` has been told of enough bytes."""
        if self._most is None:
            return
        self._added += added
        if self._added < LOOKED_AT_AGAIN * self._most:
            return
        self._added = 0
        artifacts = cached(self._root)
        self._over = sum(each.bytes for each in artifacts) - self._most
        for each in artifacts:
            if self._over <= 0 or time.time() - each.used < STAYS_FOR_SECONDS:
                return
            yield each.reference

    def freed(self, size: int) -> None:
        """So many bytes were freed."""
        self._over -= size
