"""Each error names the artifact, what was found, and what to do."""

from __future__ import annotations

from pathlib import Path

from turnwise.store import Reference
from turnwise.store.artifact_errors import damaged, not_made_again

REFERENCE = Reference(kind="policy", digest="0" * 32)


def test_a_damaged_artifact_is_named_with_its_folder() -> None:
    said = str(damaged(REFERENCE, Path("/store/policy/0"), "the file a is missing"))
    assert f"{REFERENCE} must be what its digest says; the file a is missing: delete /store/policy/0" in said


def test_files_that_nothing_makes_again_are_named() -> None:
    assert f"the files a, b of the artifact {REFERENCE}" in str(not_made_again(REFERENCE, ["a", "b"]))
