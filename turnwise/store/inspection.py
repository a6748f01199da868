"""Inspection of a home: every artifact, note and database is read and checked, without trusting the store's index.

"Damaged" is whatever is not as it was written. "Left over" is what nobody needs (a killed writer's draft, a clock file
whose artifact is gone): it takes a little space and does no harm.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnwise import progress
from turnwise.errors import ArtifactError
from turnwise.store.artifacts import DIGEST, DRAFTS, Store
from turnwise.store.digests import sha256_of
from turnwise.store.index import INDEX
from turnwise.store.manifest import KIND, MANIFEST, FileEntry, Reference, manifest_of
from turnwise.store.notes import Clock, Lineage, damage
from turnwise.store.place import MARKER, SharedPlace
from turnwise.store.placed_artifacts import RESULTS, STORE, name_of, name_of_note, notes_among, references_among
from turnwise.store.pruning import PRUNED, pruned_in

PATIENCE_SECONDS = 60.0
"""How long to wait for a database that another process has locked for writing."""


@dataclass(frozen=True)
class Inspected:
    """The findings for one part of a home (artifacts, notes or a database)."""

    part: str
    mended_by: str
    """How to repair damage, as a sentence."""
    checked: int = 0
    """Number of artifacts, files or databases that were checked."""
    damaged: list[str] = field(default_factory=list)
    """One sentence per damaged item."""
    left_over: list[str] = field(default_factory=list)
    """Files and folders that may be deleted."""


def inspect_artifacts(store: Store) -> Inspected:
    """Check every file of every artifact against its manifest; pruned files may be missing.

    Drafts are reported as left over, although a running process may still be writing one.
    """
    damaged: list[str] = []
    references = list(_references(store))
    for number, reference in enumerate(references):
        progress.report("artifacts", number, len(references))
        try:
            store.verify(reference)
        except (ArtifactError, OSError) as error:
            damaged.append(str(error))
    for path in _strangers(store):
        damaged.append(f"{path} is no artifact and belongs to none: move it elsewhere")
    drafts = sorted(str(path) for path in (store.root / DRAFTS).glob("*"))
    return Inspected("artifacts", "running the experiment again computes it", len(references), damaged, drafts)


def inspect_notes(store: Store) -> Inspected:
    """Check the clock and provenance files of all artifacts; those whose artifact is gone are left over."""
    damaged, left_over = [], []
    present = set(_references(store))
    files = [path for folder in _kinds(store) for path in sorted(folder.rglob("*.json")) if _is_note(path, folder)]
    for number, path in enumerate(files):
        progress.report("clocks and lineage", number, len(files))
        is_clock = path.name.endswith(".clock.json")
        if (why := damage(path, Clock if is_clock else Lineage)) is not None:
            damaged.append(f"{path} cannot be read: {why}")
        artifact_path = path if is_clock else path.parent
        owner = Reference(kind=artifact_path.parent.name, digest=artifact_path.name.partition(".")[0])
        if owner not in present:
            left_over.append(str(path))
    mended_by = "delete the file: the stage writes it when it is computed again, and nothing needs it before"
    return Inspected("clocks and lineage", mended_by, len(files), damaged, left_over)


def inspect_database(part: str, path: Path, mended_by: str) -> Inspected:
    """Check a SQLite database with `PRAGMA integrity_check` (every page and index); a missing database is skipped.

    At most 10 problems are reported.
    """
    if not path.exists():
        return Inspected(part, mended_by)
    progress.report(part, 0, 1)
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
    try:
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)")]
    except sqlite3.Error as error:
        problems = [str(error)]
    finally:
        connection.close()
    return Inspected(part, mended_by, 1, [f"{path}: {what}" for what in problems if what != "ok"])


def _kinds(store: Store) -> Iterator[Path]:
    if store.root.is_dir():
        yield from sorted(path for path in store.root.iterdir() if path.is_dir() and re.fullmatch(KIND, path.name))


def _references(store: Store) -> Iterator[Reference]:
    for kind in _kinds(store):
        for path in sorted(kind.iterdir()):
            if path.is_dir() and DIGEST.fullmatch(path.name):
                yield Reference(kind=kind.name, digest=path.name)


def _is_note(path: Path, kind: Path) -> bool:
    beside = path.parent == kind and path.name.endswith(".clock.json")
    return beside or (path.parent.parent == kind and path.parent.name.endswith(".lineage"))


def _strangers(store: Store) -> Iterator[Path]:
    """Paths in the store that belong to no artifact."""
    kinds = set(_kinds(store))
    for path in sorted(store.root.iterdir()) if store.root.is_dir() else []:
        if path not in kinds and path.name not in (DRAFTS, INDEX):
            yield path
    for kind in sorted(kinds):
        yield from (path for path in sorted(kind.iterdir()) if not DIGEST.fullmatch(path.name.partition(".")[0]))


def inspect_place(place: SharedPlace) -> Inspected:
    """Check every file of every artifact in a shared place against its manifest, and every note.

    Files of an artifact that has no manifest are left over: somebody may still be writing it.

    Raises as `SharedPlace` does.
    """
    sizes = place.sizes("")
    references = references_among(sizes)
    damaged: list[str] = []
    known = {MARKER}
    for number, reference in enumerate(references):
        progress.report("shared store", number, len(references))
        notes = notes_among(reference, sizes)
        content = place.read(notes)
        known.update(notes)
        known.update(name for name in sizes if name.startswith(f"{STORE}/{reference}/"))
        damaged += _find_damage(place, reference, sizes, content)
    unknown = [name for name in sizes if name not in known and not name.startswith(f"{RESULTS}/")]
    left_over = [f"{place.url}/{name}" for name in unknown if name.startswith(f"{STORE}/")]
    mended_by = "running the experiment again on a machine that lacks it computes it again and replaces it"
    return Inspected("shared store", mended_by, len(references), damaged, left_over)


def _find_damage(
    place: SharedPlace, reference: Reference, sizes: Mapping[str, int], content: Mapping[str, bytes]
) -> Iterator[str]:
    """A sentence for everything that is damaged of one artifact."""
    for name, text in content.items():
        if name != name_of(reference, MANIFEST) and name != name_of_note(reference, PRUNED):
            kind = Clock if name.endswith(".clock.json") else Lineage
            try:
                kind.validate_json(text)
            except ValueError:
                yield f"{place.url}/{name} cannot be read"
    try:
        manifest = manifest_of(reference, content.get(name_of(reference, MANIFEST), b""))
    except ValueError:
        yield f"{place.url}/{name_of(reference, MANIFEST)} is not the manifest of {reference}"
        return
    pruned = pruned_in(content.get(name_of_note(reference, PRUNED), b""))
    for file, entry in manifest.files.items():
        name = name_of(reference, file)
        if name not in sizes and file in pruned:
            continue
        if sizes.get(name) != entry.bytes or not _is_whole(place, name, entry):
            yield f"{place.url}/{name} is missing or not what was written"


def _is_whole(place: SharedPlace, name: str, entry: FileEntry) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "file"
        return place.download(name, copy) and sha256_of(copy) == entry.sha256
