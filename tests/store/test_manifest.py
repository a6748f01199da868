"""The manifest of an artifact: what it lists, and what its digest depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.errors import ArtifactError
from turnwise.store import Draft, Reference
from turnwise.store.manifest import describe


def test_a_reference_cannot_lead_out_of_the_store() -> None:
    with pytest.raises(ValueError, match="pattern"):
        Reference(kind="../sample", digest="0" * 32)
    with pytest.raises(ValueError, match="pattern"):
        Reference(kind="sample", digest="../../" + "0" * 26)


def test_a_reference_is_written_as_kind_and_digest() -> None:
    reference = Reference(kind="policy", digest="0a" * 16)
    assert str(reference) == "policy/" + "0a" * 16
    assert Reference.model_validate(reference.model_dump()) == reference
    with pytest.raises(ValueError, match="extra"):
        Reference.model_validate({**reference.model_dump(), "path": "/tmp"})


def test_a_draft_is_described_by_every_file_below_it_in_order(tmp_path: Path) -> None:
    draft = Draft("sample", tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "inner.bin").write_bytes(b"")
    (tmp_path / "a.txt").write_text("hello")
    draft.metrics.update(turns=3, success=0.5)
    manifest = describe(draft)
    # printf hello | sha256sum; printf '' | sha256sum
    hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert {name: (entry.sha256, entry.bytes) for name, entry in manifest.files.items()} == {
        "a.txt": (hello, 5),
        "b/inner.bin": (nothing, 0),
    }
    assert manifest.metrics == {"success": 0.5, "turns": 3.0}
    assert list(manifest.files) == ["a.txt", "b/inner.bin"] and list(manifest.metrics) == ["success", "turns"]


def test_the_digest_of_a_manifest_depends_on_kind_files_and_metrics(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    manifest = describe(Draft("sample", tmp_path))
    others = [
        manifest.model_copy(update={"kind": "another"}),
        manifest.model_copy(update={"metrics": {"success": 0.0}}),
        manifest.model_copy(update={"files": {"b.txt": manifest.files["a.txt"]}}),
        manifest.model_copy(update={"files": {}}),
    ]
    assert manifest.reference == manifest.model_copy().reference
    assert len({each.reference.digest for each in (manifest, *others)}) == 5
    assert others[0].reference.kind == "another"


def test_a_draft_has_no_reference_before_it_is_finished(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="TW-unfinished-draft"):
        Draft("policy", tmp_path).reference  # noqa: B018
