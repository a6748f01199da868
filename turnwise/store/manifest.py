"""The manifest of an artifact, whose digest is the artifact's name; references to artifacts; drafts being written."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from turnwise.errors import ArtifactError
from turnwise.store.digests import digest_of
from turnwise.store.files import files_below

MANIFEST = "manifest.json"
KIND = r"^[a-z][a-z0-9_-]*$"


class Reference(BaseModel):
    """What stages pass to one another instead of data: the kind of an artifact and the digest of its content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(pattern=KIND)
    digest: str = Field(pattern=r"^[0-9a-f]{32}$")

    def __str__(self) -> str:
        return f"{self.kind}/{self.digest}"


class FileEntry(BaseModel):
    """What the manifest says of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    bytes: int


class Manifest(BaseModel):
    """What an artifact consists of. Its digest is the artifact's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(pattern=KIND)
    files: dict[str, FileEntry]
    """By path relative to the artifact's folder, with forward slashes."""
    metrics: dict[str, float]

    @property
    def reference(self) -> Reference:
        """The reference to the artifact that this manifest describes: its kind and this manifest's digest."""
        return Reference(kind=self.kind, digest=digest_of(self.model_dump(mode="json")))


def manifest_of(reference: Reference, content: bytes) -> Manifest:
    """The manifest of an artifact, from its text. Raises ValueError where it is none, or another one's."""
    manifest = Manifest.model_validate_json(content)
    if manifest.reference != reference:
        raise ValueError(f"it is that of {manifest.reference}")
    return manifest


class Draft:
    """An artifact that is being written: put files into `folder` and numbers into `metrics`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.metrics: dict[str, float] = {}
        self._reference: Reference | None = None

    def begin_with(self, folder: Path) -> None:
        """Copy all files of an artifact's folder but its manifest; its metrics are therefore not copied."""
        shutil.copytree(folder, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))

    @property
    def reference(self) -> Reference:
        """The reference to the finished artifact.

        Raises:
            ArtifactError: the `with store.write(...)` block has not ended yet.
        """
        if self._reference is None:
            raise ArtifactError(
                f"a draft has a digest only when it is finished; this {self.kind} is still being written: "
                "read draft.reference after the `with store.write(...)` block",
                "TW-unfinished-draft",
            )
        return self._reference


def describe(draft: Draft) -> Manifest:
    """The manifest of a draft; every file is synced to the disk on return.

    Raises:
        ArtifactError: the draft holds something other than a plain file, a file with the manifest's name, or a metric
            that is not finite.
    """
    files = {}
    for name, entry in sorted(files_below(draft.folder), key=lambda file: file[0]):
        if not entry.is_file(follow_symlinks=False) or name == MANIFEST:
            raise ArtifactError(
                f"an artifact holds plain files, and {MANIFEST} is written by the store; the {draft.kind} has {name}: "
                "copy what a link points to, or choose another name",
                "TW-artifact-content",
            )
        files[name] = _entry(entry.path)
    metrics = {name: float(value) for name, value in sorted(draft.metrics.items())}
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise ArtifactError(
                f"a metric must be a finite number; {name} of the {draft.kind} is {value}: leave out what is undefined",
                "TW-not-finite",
            )
    return Manifest(kind=draft.kind, files=files, metrics=metrics)


def _entry(path: str) -> FileEntry:
    """The entry of a file, which is on the disk on return: it is opened once, to be read and synced."""
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return FileEntry(sha256=digest, bytes=file.tell())
