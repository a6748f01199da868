"""Inspection of a home: every artifact, note and database is read and checked, without trusting the store's index.

"Damaged" is whatever is not as it was written. "Left over" is what nobody needs (a killed writer's draft, a clock file
whose artifact is gone): it takes a little space and does no harm.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from turnwise import progress
from turnwise.errors import ArtifactError
from turnwise.store.artifacts import DIGEST, DRAFTS, Store
from turnwise.store.index import INDEX
from turnwise.store.manifest import KIND, Reference
from turnwise.store.notes import Clock, Lineage, damage

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
    left_over: list[Path] = field(default_factory=list)
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
    drafts = sorted((store.root / DRAFTS).glob("*"))
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
        of_artifact = path if is_clock else path.parent
        owner = Reference(kind=of_artifact.parent.name, digest=of_artifact.name.partition(".")[0])
        if owner not in present:
            left_over.append(path)
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
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)")]
    except sqlite3.Error as error:
        found = [str(error)]
    finally:
        connection.close()
    return Inspected(part, mended_by, 1, [f"{path}: {what}" for what in found if what != "ok"])


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
