"""`turnwise prune` says what it would remove, removes that and fits a terminal; `turnwise restore` brings it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.commands import cli
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.store import Reference, default_store


def run(*words: str) -> None:
    cli.run(words)


@pytest.fixture
def policies(turnwise_home: Path) -> list[Reference]:
    """A warm start, and two policies that were made from it one after the other."""
    made: list[Reference] = []
    for number, stage in enumerate(("warm_start", "update", "update")):
        with default_store().write("policy") as draft:
            (draft.folder / "optimizer").mkdir()
            (draft.folder / "model.safetensors").write_bytes(bytes([number]) * 1_000_000)
            (draft.folder / "optimizer" / "adamw.safetensors").write_bytes(bytes([number]) * 2_000_000)
        inputs = {"policy": str(made[-1])} if made else {}
        record = {"stage": stage, "parameters": {}, "inputs": inputs, "commit": "0"}
        default_store().record_lineage(draft.reference, "key", record)
        made.append(draft.reference)
    return made


def test_a_dry_run_removes_nothing_and_a_real_one_what_it_said(
    policies: list[Reference], capsys: pytest.CaptureFixture[str]
) -> None:
    store = default_store()
    run("prune", "--dry-run")
    said = capsys.readouterr().out
    assert "Nothing was removed: 3.0 MB would be." in said
    assert max(map(len, said.splitlines())) <= 80
    assert not any(map(store.pruned, policies))
    run("prune", "-s", "storage.keep_last=2")
    assert "2.0 MB removed." in capsys.readouterr().out
    assert store.pruned(policies[1]) == ["optimizer/adamw.safetensors"]
    run("prune")
    assert "1.0 MB removed." in capsys.readouterr().out
    assert [len(store.pruned(each)) for each in policies] == [0, 2, 0]
    run("prune")
    assert "0 kB removed." in capsys.readouterr().out


def test_restore_prints_the_folder_of_what_is_there(
    policies: list[Reference], capsys: pytest.CaptureFixture[str]
) -> None:
    run("restore", str(policies[2])[:20])
    assert capsys.readouterr().out.strip() == str(default_store().folder(policies[2]))


def test_restore_says_why_what_was_pruned_cannot_come_back(policies: list[Reference]) -> None:
    run("prune")
    with pytest.raises(ArtifactError, match="TW-stage-changed"):
        run("restore", str(policies[1]))


def test_restore_wants_one_artifact(policies: list[Reference]) -> None:
    with pytest.raises(ConfigurationError, match="TW-ambiguous-digest"):
        run("restore", "policy/000000")
