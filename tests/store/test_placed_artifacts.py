"""The names of artifacts in a shared place, and which of the names there belong to which."""

from __future__ import annotations

from turnwise.store import Reference
from turnwise.store.placed_artifacts import name_of, name_of_note, notes_among, references_among
from turnwise.store.pruning import pruned_in

ONE, OTHER = Reference(kind="policy", digest="0" * 32), Reference(kind="policy", digest="1" * 32)


def test_names_are_those_of_a_local_store() -> None:
    assert name_of(ONE, "optimizer/state.safetensors") == f"store/policy/{'0' * 32}/optimizer/state.safetensors"
    assert name_of_note(ONE, ".clock.json") == f"store/policy/{'0' * 32}.clock.json"


def test_an_artifact_is_there_when_its_manifest_is() -> None:
    held = {name_of(ONE, "manifest.json"): 5, name_of(OTHER, "weights.bin"): 5, name_of(ONE, "a/manifest.json"): 1}
    assert references_among(held) == [ONE]


def test_its_notes_are_the_manifest_and_what_lies_next_to_it() -> None:
    lineage, clock = name_of_note(ONE, ".lineage/ab.json"), name_of_note(ONE, ".clock.json")
    manifest = name_of(ONE, "manifest.json")
    names = [manifest, name_of(ONE, "weights.bin"), lineage, clock, name_of_note(OTHER, ".clock.json")]
    assert notes_among(ONE, names) == [manifest, lineage, clock]


def test_a_record_of_pruned_files_that_cannot_be_read_names_none() -> None:
    assert pruned_in(b'{"files": ["a", "b"]}') == {"a", "b"}
    assert pruned_in(b"") == pruned_in(b'{"files": ["a"') == frozenset()
