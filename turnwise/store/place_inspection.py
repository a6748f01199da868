"""Inspection of a shared place: every artifact and record in it is read and checked. Nothing is changed or cached."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from turnwise import progress
from turnwise.store.digests import sha256_of
from turnwise.store.inspection import Inspected
from turnwise.store.manifest import MANIFEST, FileEntry, Manifest, Reference
from turnwise.store.notes import Clock, Lineage
from turnwise.store.place import MARKER, SharedPlace
from turnwise.store.placed_artifacts import (
    PRUNED,
    RESULTS,
    STORE,
    name_of,
    name_of_note,
    notes_among,
    pruned_in,
    references_among,
)


def inspect_place(place: SharedPlace) -> Inspected:
    """Check every file of every artifact in a shared place against its manifest, and every note.

    Files of an artifact that has no manifest are left over: somebody may still be writing it.

    Raises as `SharedPlace` does.
    """
    held = place.sizes("")
    references = references_among(held)
    damaged: list[str] = []
    known = {MARKER}
    for number, reference in enumerate(references):
        progress.report("shared store", number, len(references))
        notes = notes_among(reference, held)
        content = place.read(notes)
        known.update(notes)
        known.update(name for name in held if name.startswith(f"{STORE}/{reference}/"))
        damaged += _damaged(place, reference, held, content)
    left = [name for name in held if name not in known and not name.startswith(f"{RESULTS}/")]
    of_turnwise = [Path(place.url, name) for name in left if name.startswith(f"{STORE}/")]
    mended_by = "running the experiment again on a machine that lacks it computes it again and replaces it"
    return Inspected("shared store", mended_by, len(references), damaged, of_turnwise)


def _damaged(
    place: SharedPlace, reference: Reference, held: Mapping[str, int], content: Mapping[str, bytes]
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
        manifest = Manifest.model_validate_json(content.get(name_of(reference, MANIFEST), b""))
        if manifest.reference != reference:
            raise ValueError("it is another one's")
    except ValueError:
        yield f"{place.url}/{name_of(reference, MANIFEST)} is not the manifest of {reference}"
        return
    gone = pruned_in(content.get(name_of_note(reference, PRUNED), b""))
    for file, entry in manifest.files.items():
        name = name_of(reference, file)
        if name not in held and file in gone:
            continue
        if held.get(name) != entry.bytes or not _is_whole(place, name, entry):
            yield f"{place.url}/{name} is missing or not what was written"


def _is_whole(place: SharedPlace, name: str, entry: FileEntry) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "file"
        return place.download(name, copy) and sha256_of(copy) == entry.sha256
