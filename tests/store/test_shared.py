"""A shared store: what one machine writes another finds, whole or not at all, and the local copy has a bound.

Two machines are two local stores at one place: a folder, and a prefix on a real S3 server.
"""

from __future__ import annotations

import logging
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.store.s3_server import S3Server, failing
from turnwise.errors import ArtifactError, StoreUnreachable
from turnwise.store import Reference, Store, place
from turnwise.store.default import place_at
from turnwise.store.provenance import matching_artifacts
from turnwise.store.shared import SharedStore

KEY = "a" * 32


@pytest.fixture(params=["folder", "bucket"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "bucket":
        return str(request.getfixturevalue("url"))
    (tmp_path / "mounted").mkdir()
    return str(tmp_path / "mounted")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "FIRST_PAUSE_SECONDS", 0.01)


place_of = cache(place_at)
"""A client takes half a second to make, and the machines of all tests are in one process."""


class Machines:
    """Machines by name, each with a local store of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def new(self, name: str, **options: Any) -> SharedStore:
        """A process on this machine: one of an earlier process has the same local store."""
        return SharedStore(self.folder / name, place_of(self.url), **options)


@pytest.fixture
def machines(tmp_path: Path, shared_url: str) -> Machines:
    return Machines(tmp_path, shared_url)


@pytest.fixture
def on_s3(tmp_path: Path, url: str) -> Machines:
    return Machines(tmp_path, url)


def write(store: Store, text: str = "x", size: int = 1000) -> Reference:
    with store.write("policy") as draft:
        (draft.folder / "weights.bin").write_bytes(text.encode() * size)
        (draft.folder / "optimizer").mkdir()
        (draft.folder / "optimizer" / "state.bin").write_bytes(text.encode() * 2 * size)
        draft.metrics["success"] = 0.5
    store.record_lineage(draft.reference, KEY, {"stage": "update", "inputs": {}})
    store.record_clock(draft.reference, {"seconds": 1.5})
    return draft.reference


def files_in(store: Store, reference: Reference) -> list[str]:
    folder = store.root / str(reference)
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_another_machine_finds_what_one_has_written_and_downloads_what_it_needs(machines: Machines) -> None:
    reference = write(machines.new("one"))
    other = machines.new("two")
    assert other.holds(reference) and other.was_made_under(reference, KEY) and not other.was_made_under(reference, "b")
    assert other.metrics(reference) == {"success": 0.5} and other.clock(reference) == {"seconds": 1.5}
    assert other.lineage(reference)[KEY]["stage"] == "update"
    assert files_in(other, reference) == ["manifest.json"]
    assert (other.folder(reference, ["weights*"]) / "weights.bin").read_bytes() == b"x" * 1000
    assert files_in(other, reference) == ["manifest.json", "weights.bin"]
    other.folder(reference)
    assert files_in(other, reference) == ["manifest.json", "optimizer/state.bin", "weights.bin"]
    other.verify(reference)


def test_what_is_here_is_not_asked_for(on_s3: Machines, s3: S3Server) -> None:
    store = on_s3.new("one")
    reference = write(store)
    s3.requests.clear()
    again = on_s3.new("one")
    again.folder(reference)
    assert again.metrics(reference) and again.clock(reference) and again.was_made_under(reference, KEY)
    assert s3.requests == []


def test_the_local_copy_is_a_store_by_itself(machines: Machines) -> None:
    reference = write(machines.new("one"))
    other = machines.new("two")
    other.folder(reference, ["weights*"])
    alone = Store(machines.folder / "two")
    alone.verify(reference)
    assert alone.holds(reference) and alone.pruned(reference) == ["optimizer/state.bin"]


def test_an_artifact_without_a_manifest_in_the_place_is_not_there(machines: Machines) -> None:
    reference = write(machines.new("one"))
    machines.new("one").place.remove([f"store/{reference}/manifest.json"])
    assert not machines.new("two").holds(reference)
    assert write(machines.new("two")) == reference
    assert machines.new("three").holds(reference)


def test_a_writer_that_was_killed_on_the_way_is_finished_by_the_next(machines: Machines) -> None:
    killed = machines.new("one")
    real, uploads = killed.place.write, []

    def kill(name: str, content: bytes) -> None:
        uploads.append(name)
        raise KeyboardInterrupt

    killed.place.write = kill  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        write(killed)
    assert uploads == [f"store/{(reference := Store(killed.root).references()[0])}/manifest.json"]
    assert not machines.new("two").holds(reference)
    killed.place.write = real  # type: ignore[method-assign]
    assert write(machines.new("one")) == reference
    assert machines.new("two").holds(reference)


def test_two_writers_of_one_content_are_harmless(machines: Machines) -> None:
    one, other = machines.new("one"), machines.new("two")
    with one.write("policy") as first, other.write("policy") as second:
        for draft in (first, second):
            (draft.folder / "weights.bin").write_bytes(b"same")
    assert first.reference == second.reference
    one.record_lineage(first.reference, "a" * 32, {"stage": "one"})
    other.record_lineage(first.reference, "b" * 32, {"stage": "other"})
    assert (
        set(machines.new("three").lineage(first.reference))
        == set(one.lineage(first.reference))
        == {
            "a" * 32,
            "b" * 32,
        }
    )
    machines.new("three").folder(first.reference)


def test_what_is_pruned_is_pruned_for_all_and_made_again_for_who_needs_it(machines: Machines) -> None:
    one = machines.new("one")
    reference = write(one)
    other = machines.new("two")
    assert other.holds(reference)
    assert one.prune(reference, ["optimizer/*"]) == 2000
    assert other.pruned(reference) == one.pruned(reference) == ["optimizer/state.bin"]
    assert machines.new("three").pruned(reference) == ["optimizer/state.bin"]
    other.folder(reference, ["weights*"])
    with pytest.raises(ArtifactError, match="TW-pruned"):
        other.folder(reference)
    with other.restoring(reference, ["optimizer/state.bin"]):
        write(other)
    other.folder(reference)
    assert other.pruned(reference) == []
    assert machines.new("three").pruned(reference) == ["optimizer/state.bin"], "what is restored stays where it is"
    with pytest.raises(ArtifactError, match="TW-pruned"):
        machines.new("three").folder(reference)
    assert machines.new("three").holds(reference)


def test_pruning_finds_what_only_the_place_holds(machines: Machines) -> None:
    reference = write(machines.new("one"))
    other = machines.new("two")
    assert other.prune(reference, ["optimizer/*"]) == 2000
    assert machines.new("three").pruned(reference) == ["optimizer/state.bin"]


def test_all_artifacts_are_listed_with_their_lineage(machines: Machines) -> None:
    one, other = machines.new("one"), machines.new("two")
    both = sorted([write(one, "x"), write(other, "y")], key=str)
    assert other.references() == other.references("policy") == both and other.references("rollout") == []
    assert other.references("policy", both[0].digest[:8]) == [both[0]] == matching_artifacts(other, both[0].digest[:8])
    one.record_lineage(both[0], "c" * 32, {"stage": "late"})
    fresh = machines.new("two")
    fresh.references("policy")
    assert "c" * 32 in fresh.lineage(both[0])


@pytest.mark.parametrize("name", ["weights.bin", "manifest.json"])
@pytest.mark.parametrize("content", [b"", b"y" * 1000])
def test_a_damaged_object_is_found_computed_again_and_replaced(
    on_s3: Machines, s3: S3Server, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reference = write(on_s3.new("one"))
    key = f"team/turnwise/store/{reference}/{name}"
    s3.put(key, content)

    other = on_s3.new("two")
    if other.holds(reference):  # of the right length: found when it is read
        with pytest.raises(ArtifactError):
            other.folder(reference)
        assert "is not what was written" in caplog.text
    assert write(other) == reference
    assert s3.objects()[key] not in (b"", b"y" * 1000)
    on_s3.new("three").folder(reference)


def test_a_damaged_object_that_nothing_computes_again_counts_as_missing_after_that(
    on_s3: Machines, s3: S3Server
) -> None:
    reference = write(on_s3.new("one"))
    s3.put(f"team/turnwise/store/{reference}/weights.bin", b"y" * 1000)
    with pytest.raises(ArtifactError):
        on_s3.new("two").folder(reference)
    restarted = on_s3.new("two")
    assert not restarted.holds(reference)
    assert write(restarted) == reference
    on_s3.new("three").folder(reference)


def test_what_is_damaged_here_is_read_from_the_place(machines: Machines, caplog: pytest.LogCaptureFixture) -> None:
    store = machines.new("one")
    reference = write(store)
    (store.root / str(reference) / "weights.bin").write_bytes(b"z" * 1000)
    caplog.set_level(logging.WARNING)
    assert (machines.new("one").folder(reference) / "weights.bin").read_bytes() == b"x" * 1000
    assert "is damaged in" in caplog.text


def test_a_server_that_fails_between_any_two_requests_costs_nothing_but_time(on_s3: Machines, s3: S3Server) -> None:
    chance = random.Random(0)
    s3.trouble = lambda request: failing(1)(request) if chance.random() < 0.4 else None
    reference = write(on_s3.new("one"))
    other = on_s3.new("two")
    other.folder(reference)
    assert other.lineage(reference) and other.prune(reference, ["optimizer/*"]) == 2000


def test_a_server_that_stays_away_stops_the_writer_and_a_restart_goes_on(
    on_s3: Machines, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.05)
    store = on_s3.new("one")
    s3.trouble = failing(10**6, when="PUT")
    with pytest.raises(StoreUnreachable, match="TW-store-unreachable"):
        write(store)
    s3.trouble = lambda request: None
    reference = write(on_s3.new("one"))
    on_s3.new("two").folder(reference)


def grown_old(store: Store) -> None:
    """An hour goes by for what is in the local store."""
    for entry in (store.root / ".verified").rglob("*"):
        if entry.is_file():
            os.utime(entry, (entry.stat().st_mtime - 3600,) * 2)


def test_the_local_copy_keeps_its_bound_and_gets_back_what_it_gave_up(machines: Machines) -> None:
    store = machines.new("one", most_bytes=7000)
    first = write(store, "a")
    grown_old(store)
    second = write(store, "b")
    grown_old(store)
    third = write(store, "c")
    assert [len(files_in(store, each)) for each in (first, second, third)] == [1, 3, 3]
    assert store.holds(first) and store.metrics(first) == {"success": 0.5} and store.pruned(first) == []
    assert (store.folder(first, ["weights*"]) / "weights.bin").read_bytes() == b"a" * 1000
    assert machines.new("two").pruned(first) == [], "nothing was pruned in the place"


def test_what_the_place_does_not_hold_is_never_given_up(machines: Machines) -> None:
    before = write(Store(machines.folder / "one"))
    store = machines.new("one", most_bytes=4000)
    grown_old(store)
    write(store, "b")
    assert len(files_in(store, before)) == 3


def test_nothing_that_somebody_reads_is_given_up(machines: Machines) -> None:
    from turnwise.store.pruning import reading

    store = machines.new("one", most_bytes=4000)
    first = write(store, "a")
    with reading():
        store.folder(first)
        grown_old(store)
        write(store, "b")
        assert len(files_in(store, first)) == 3
