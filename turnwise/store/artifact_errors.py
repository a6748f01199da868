"""The errors for artifacts that are not as they must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnwise.errors import ArtifactError
from turnwise.store.manifest import Reference


def damaged(reference: Reference, folder: Path, what: str) -> ArtifactError:
    """The error for an artifact in this folder whose content is not what its digest says."""
    return ArtifactError(
        f"the artifact {reference} must be what its digest says; {what}: delete {folder} and run the experiment again, "
        "which computes it again"
    )


def not_made_again(reference: Reference, files: Sequence[str]) -> ArtifactError:
    """The error for files that were pruned. Who asks for them does not compute them."""
    return ArtifactError(
        f"the files {', '.join(files)} of the artifact {reference} must be there to be read; they were pruned: "
        f"`turnwise restore {reference}` makes them again"
    )
