"""Prefect's records of what stages returned: `<home>/results/<stage>/<digest of the cache key>`, a JSON file each.

A record is believed when it names an artifact that the store knows, by its lineage, to have been made under the
record's own key, and that is intact. A record that was copied, exchanged, cut off or written by hand is not: the
artifact that it names was made under another key, or there is none. They are read here, before Prefect would, as
plain JSON: what a record says decides neither what is imported nor how it is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnwise import progress
from turnwise.errors import ArtifactError
from turnwise.store import Reference, Store
from turnwise.store.inspection import Inspected
from turnwise.store.paths import home


class EarlierRecord(ArtifactError):
    """A record in the form of an earlier version, which nothing asks for any more: code is part of every key."""


def records_folder() -> Path:
    """Where the records of the present home lie."""
    return home() / "results"


def recorded_keys() -> Iterator[str]:
    """The cache keys, `<stage>/<digest>`, of all records of the present home, in order."""
    folder = records_folder()
    for path in sorted(folder.glob("*/*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix()


def recorded(key: str, store: Store) -> Reference | None:
    """What the stage's call with this cache key returned; None where nothing is recorded.

    Raises:
        ArtifactError: the record cannot be read, is that of another key, or its artifact is missing or damaged.
    """
    if (reference := _bound(key, store)) is not None:
        store.folder(reference, needed=())
    return reference


def inspect_records(store: Store) -> Inspected:
    """Every record can be read, is that of its key, and names an artifact that is there; see `inspect_artifacts` for
    whether that is intact.
    """
    damaged, left_over = [], []
    keys = list(recorded_keys())
    for number, key in enumerate(keys):
        progress.report("records", number, len(keys))
        try:
            reference = _bound(key, store)
            if reference is not None and not (store.root / str(reference)).is_dir():
                damaged.append(f"the record {records_folder() / key} names {reference}, which the store does not hold")
        except EarlierRecord:
            left_over.append(records_folder() / key)
        except (ArtifactError, OSError) as error:
            damaged.append(str(error))
    mended_by = "running the experiment again computes and records it anew"
    return Inspected("records", mended_by, len(keys), damaged, left_over)


def _bound(key: str, store: Store) -> Reference | None:
    """What the record of a key names, where the store knows that it was made under that key."""
    path = records_folder() / key
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        reference = _reference(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError(f"the record {path} cannot be read ({type(error).__name__}: {error})") from error
    if not store.was_made_under(reference, key.rpartition("/")[2]):
        raise ArtifactError(
            f"the record {path} must name what was computed under its own key; the store does not know {reference} to "
            "have been: the record is that of another stage or call"
        )
    return reference


def _reference(record: dict[str, Any]) -> Reference:
    """What a record holds. Raises an error of its type where it is not what a stage has Prefect write."""
    if (serializer := record["metadata"]["serializer"]["type"]) != "json":
        raise ValueError(f"a stage's record is JSON, not {serializer}")
    result = json.loads(record["result"])
    if result.get("__class__") in ("turnwise.artifacts.Reference", "turnwise.store.manifest.Reference"):
        raise EarlierRecord("the record was written by an earlier version")
    return Reference.model_validate(result)
