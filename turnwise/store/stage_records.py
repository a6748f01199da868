"""Prefect's records of what stages returned: one reference as JSON each.

    <home>/results/<stage>/<digest of the cache key>

With a shared store (`storage.url`) each is in its place, too, under the same name, and is read from there where it is
not here.

A record is trusted only if it names an intact artifact whose provenance in the store says that it was made under the
record's own key. This rejects records that were copied, swapped, truncated or written by hand: their artifact was made
under another key, or does not exist. Records are read here, before Prefect reads them, as plain JSON: the content of a
record decides neither what is imported nor how it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from turnwise import progress
from turnwise.errors import ArtifactError
from turnwise.project import home
from turnwise.store import Reference, Store
from turnwise.store.atomic_write import write_whole
from turnwise.store.inspection import Inspected
from turnwise.store.placed_artifacts import RESULTS


def records_folder() -> Path:
    """The folder of the records of the current home."""
    return home() / "results"


def recorded_keys() -> Iterator[str]:
    """The cache keys, `<stage>/<digest>`, of all records of the current home, in order."""
    folder = records_folder()
    for path in sorted(folder.glob("*/*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def recorded(key: str, store: Store) -> Reference | None:
    """The result that is recorded under a cache key; None where nothing is recorded.

    Raises:
        ArtifactError: the record cannot be read or belongs to another key, or its artifact is missing or damaged.
    """
    if not (records_folder() / key).exists():
        _read_shared(key, store)
    if (reference := _bound(key, store)) is not None:
        store.folder(reference, needed=())
    return reference


def share_record(key: str, reference: Reference, store: Store) -> None:
    """Write a record, as Prefect writes it here, to the shared place of the store, if it has one."""
    if store.place is not None:
        store.place.write(f"{RESULTS}/{key}", reference.model_dump_json().encode())


def _read_shared(key: str, store: Store) -> None:
    """Write the record that the shared place has of this key, if there is one, to where Prefect looks for it."""
    name = f"{RESULTS}/{key}"
    if store.place is not None and (content := store.place.read([name]).get(name)) is not None:
        write_whole(records_folder() / key, content)


def inspect_records(store: Store) -> Inspected:
    """Check every record: it can be read, belongs to its key, and names an artifact that exists.

    Whether that artifact is intact is checked by `inspect_artifacts`.
    """
    damaged = []
    keys = list(recorded_keys())
    for number, key in enumerate(keys):
        progress.report("records", number, len(keys))
        try:
            reference = _bound(key, store)
            if reference is not None and not (store.root / str(reference)).is_dir():
                damaged.append(f"the record {records_folder() / key} names {reference}, which the store does not hold")
        except (ArtifactError, OSError) as error:
            damaged.append(str(error))
    mended_by = "running the experiment again computes and records it again"
    return Inspected("records", mended_by, len(keys), damaged, [])


def _bound(key: str, store: Store) -> Reference | None:
    """The artifact that the record of a key names, verified to be made under that key; None without a record."""
    path = records_folder() / key
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        reference = Reference.model_validate_json(content)
    except ValueError as error:
        raise ArtifactError(
            f"the record {path} cannot be read ({type(error).__name__}: {error})", "TW-damaged-record"
        ) from error
    if not store.was_made_under(reference, key.rpartition("/")[2]):
        raise ArtifactError(
            f"the record {path} must name what was computed under its own key; the store does not know {reference} to "
            "have been: the record is that of another stage or call",
            "TW-damaged-record",
        )
    return reference
