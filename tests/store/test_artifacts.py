"""The store: content decides the name, a reader sees all or nothing, damage is found."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnwise.errors import ArtifactError
from turnwise.store import Reference, Store, default_store
from turnwise.store.artifacts import ABANDONED_AFTER_SECONDS, damaged, not_made_again


def write_sample(store: Store, text: str = "content", metric: float = 0.5) -> Reference:
    with store.write("sample") as draft:
        (draft.folder / "parts").mkdir()
        (draft.folder / "parts" / "one.txt").write_text(text)
        (draft.folder / "two.bin").write_bytes(b"\x00\xff")
        draft.metrics["success"] = metric
    return draft.reference


def test_the_digest_is_that_of_the_manifest_worked_by_hand(tmp_path: Path) -> None:
    with Store(tmp_path).write("sample") as draft:
        (draft.folder / "a.txt").write_text("hello")
        draft.metrics["success"] = 1
    # printf hello | sha256sum
    hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    text = '{"files":{"a.txt":{"bytes":5,"sha256":"' + hello + '"}},"kind":"sample","metrics":{"success":1.0}}'
    assert draft.reference == Reference(kind="sample", digest=hashlib.sha256(text.encode()).hexdigest()[:32])


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    folder = store.folder(reference)
    assert (folder / "parts" / "one.txt").read_text() == "content"
    assert (folder / "two.bin").read_bytes() == b"\x00\xff"
    assert store.metrics(reference) == {"success": 0.5}
    assert store.manifest(reference).files["two.bin"].bytes == 2


def test_equal_content_has_one_name_in_every_store_and_is_stored_once(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    reference = write_sample(here)
    assert write_sample(there) == reference
    before = here.folder(reference).stat().st_ino
    assert write_sample(here) == reference
    assert here.folder(reference).stat().st_ino == before
    assert [path.name for path in (tmp_path / "here" / "sample").iterdir()] == [reference.digest]


@pytest.mark.parametrize(("text", "metric"), [("other", 0.5), ("content", 0.25)])
def test_other_content_or_metrics_have_another_name(tmp_path: Path, text: str, metric: float) -> None:
    store = Store(tmp_path)
    assert write_sample(store) != write_sample(store, text, metric)


def test_the_clock_and_the_lineage_are_no_part_of_the_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    store.record_clock(reference, {"seconds": 3.5})
    store.record_clock(reference, {"tokens_per_second": 900.0})
    store.record_lineage(reference, "b" * 32, {"stage": "second"})
    store.record_lineage(reference, "a" * 32, {"stage": "first"})
    assert write_sample(store) == reference
    store.verify(reference)
    assert store.clock(reference) == {"seconds": 3.5, "tokens_per_second": 900.0}
    assert store.lineage(reference) == {"a" * 32: {"stage": "first"}, "b" * 32: {"stage": "second"}}


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ZeroDivisionError), store.write("sample") as draft:
        (draft.folder / "half.txt").write_text("half")
        raise ZeroDivisionError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ArtifactError, match="TW-unfinished-draft"):
        _ = draft.reference


def test_a_writer_that_is_killed_leaves_nothing_that_a_reader_sees(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from turnwise.store import Store\n"
        "with Store(Path(sys.argv[1])).write('sample') as draft:\n"
        "    (draft.folder / 'half.txt').write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "sample").exists()
    (draft,) = (tmp_path / ".drafts").iterdir()
    Store(tmp_path)
    assert draft.exists(), "it may still be being written"
    long_ago = time.time() - ABANDONED_AFTER_SECONDS - 60
    os.utime(draft, (long_ago, long_ago))
    Store(tmp_path)
    assert not draft.exists()


def test_every_kind_of_damage_is_found_and_says_what_to_do(tmp_path: Path) -> None:
    def overwrite(folder: Path) -> None:
        (folder / "two.bin").write_bytes(b"\x00\xfe")

    def remove(folder: Path) -> None:
        (folder / "parts" / "one.txt").unlink()

    def add(folder: Path) -> None:
        (folder / "three.txt").write_text("")

    def spoil_manifest(folder: Path) -> None:
        (folder / "manifest.json").write_text("{")

    def exchange_manifest(folder: Path) -> None:
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text.replace("0.5", "0.75"))

    for number, damage in enumerate([overwrite, remove, add, spoil_manifest, exchange_manifest]):
        store = Store(tmp_path / str(number))
        reference = write_sample(store)
        assert store.holds(reference)
        damage(store.folder(reference))
        assert not store.holds(reference), damage.__name__
        with pytest.raises(ArtifactError, match=rf"{reference.digest}.*TW-damaged-artifact"):
            store.folder(reference)
        assert write_sample(store) == reference, "a damaged artifact makes way"
        assert store.holds(reference)


def test_a_file_that_changes_without_a_trace_is_found_by_verify(tmp_path: Path) -> None:
    store = Store(tmp_path)
    reference = write_sample(store)
    path = store.folder(reference) / "two.bin"
    times = path.stat()
    path.write_bytes(b"\xff\x00")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ArtifactError, match=r"two\.bin.*TW-damaged-artifact"):
        store.verify(reference)
    assert not store.holds(reference), "what was found is remembered"


def test_a_missing_artifact_is_named_with_its_store(tmp_path: Path) -> None:
    reference = Reference(kind="sample", digest="0" * 32)
    assert not Store(tmp_path).holds(reference)
    with pytest.raises(ArtifactError, match=rf"sample/.*{'0' * 32}.*{tmp_path}.*TW-no-artifact"):
        Store(tmp_path).folder(reference)


def test_a_draft_holds_plain_files_and_finite_metrics(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ArtifactError, match="TW-artifact-content"), store.write("sample") as draft:
        (draft.folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match=r"manifest\.json.*TW-artifact-content"), store.write("sample") as draft:
        (draft.folder / "manifest.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"entropy.*TW-not-finite"), store.write("sample") as draft:
        draft.metrics["entropy"] = float("nan")
    with pytest.raises(ArtifactError, match="TW-artifact-kind"), store.write("../sample"):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_homes_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "one"))
    reference, first = write_sample(default_store()), default_store()
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "two"))
    assert not default_store().holds(reference)
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "one"))
    assert default_store() is first and default_store().holds(reference)


REFERENCE = Reference(kind="policy", digest="0" * 32)


def test_a_damaged_artifact_is_named_with_its_folder() -> None:
    said = str(damaged(REFERENCE, Path("/store/policy/0"), "the file a is missing"))
    assert f"{REFERENCE} must be what its digest says; the file a is missing: delete /store/policy/0" in said


def test_files_that_nothing_makes_again_are_named() -> None:
    assert f"the files a, b of the artifact {REFERENCE}" in str(not_made_again(REFERENCE, ["a", "b"]))
