"""A policy from outside is known by what is in it, not by where it lies; a hub's by the commit."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.pretrained import pretrained, pretrained_folder, require_unchanged
from turnwise.store.plugin_identity import Outside

ROOT = Path(__file__).parents[2]
PARAMETERS = ROOT / "tests" / "parameters.yaml"
FILES = {
    "config.json": "{}",
    "generation_config.json": '{"temperature": 0.6}',
    "model.safetensors": "weights",
    "tokenizer.json": "{}",
    "tokenizer_config.json": "{}",
    "chat_template.jinja": "{{ messages }}",
    "additional_chat_templates/tool_use.jinja": "{{ tools }}",
    "merges.txt": "a b",
}
UNREAD = ("README.md", "LICENSE", "pytorch_model.bin", "optimizer.pt", ".gitattributes", "logs/events.json")
COMMITS = ("1" * 40, "2" * 40)


def policy(model: str | Path, revision: str | None = None) -> Policy:
    section = load(PARAMETERS).policy
    return section.model_copy(update={"model": str(model), "revision": revision})


def known(model: str | Path, revision: str | None = None) -> Outside:
    found = pretrained(policy(model, revision))
    assert found is not None
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local cache of a hub that cannot be reached: one repository, two commits of it."""
    repository = tmp_path / "hub" / "models--lab--small"
    for commit in COMMITS:
        shutil.copytree(model, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    for name, commit in (("main", COMMITS[0]), ("v2", COMMITS[1])):
        (repository / "refs" / name).write_text(commit)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repository


def test_a_policy_from_scratch_has_nothing_from_outside() -> None:
    assert pretrained(policy("scratch")) is None


@pytest.mark.parametrize("name", FILES)
def test_one_byte_in_any_file_that_is_read_is_another_policy(model: Path, name: str) -> None:
    before = known(model)
    (model / name).write_text(f"{FILES[name]} ")
    assert known(model).content != before.content
    with pytest.raises(ConfigurationError, match="TW-changed-file"):
        require_unchanged(before)


def test_a_file_that_is_replaced_under_its_old_time_and_size_is_noticed(model: Path) -> None:
    weights = model / "model.safetensors"
    before, time = known(model), weights.stat().st_mtime_ns
    (model / "new").write_text("WEIGHTS")
    (model / "new").replace(weights)
    os.utime(weights, ns=(time, time))
    assert known(model).content != before.content


@pytest.mark.parametrize("name", UNREAD)
def test_files_that_no_one_reads_do_not_count(model: Path, name: str) -> None:
    before = known(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("anything")
    assert known(model) == before
    require_unchanged(before)


def moved(model: Path) -> Path:
    return model.rename(model.with_name("another name"))


def spelled_otherwise(model: Path) -> Path:
    return model / ".." / model.name


def linked(model: Path) -> Path:
    (model.parent / "link").symlink_to(model)
    return model.parent / "link"


def touched(model: Path) -> Path:
    os.utime(model / "model.safetensors", (0, 0))
    return model


@pytest.mark.parametrize("change", [moved, spelled_otherwise, linked, touched])
def test_name_spelling_and_time_do_not_count(model: Path, change: Callable[[Path], Path]) -> None:
    before = known(model)
    assert known(change(model)).content == before.content


def test_a_relative_path_is_one_from_the_projects_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = known(model)
    (tmp_path / "params.yaml").touch()
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert known("model") == before


def test_a_hub_id_is_known_by_the_commit_that_its_revision_names(hub: Path) -> None:
    assert known("lab/small").content == COMMITS[0]
    assert known("lab/small", "main") == known("lab/small")
    assert known("lab/small", "v2").content == COMMITS[1]
    assert known("lab/small", COMMITS[1]) == known("lab/small", "v2")
    assert pretrained_folder(known("lab/small", "v2")) == hub / "snapshots" / COMMITS[1]
    (hub / "refs" / "main").write_text(COMMITS[1])
    assert known("lab/small").content == COMMITS[1]


def test_what_the_cache_does_not_have_is_refused_without_a_network(hub: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'v3'.*TW-unknown-model"):
        pretrained(policy("lab/small", "v3"))
    with pytest.raises(ConfigurationError, match="TW-unknown-model"):
        pretrained(policy("lab/other"))
    with pytest.raises(ConfigurationError, match="TW-download-failed"):
        pretrained_folder(known("lab/small", "3" * 40))


def test_a_folder_without_weights_is_refused(model: Path) -> None:
    (model / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match=r"config\.json.*\*\.safetensors.*TW-missing-weights"):
        pretrained_folder(known(model))


def test_code_from_outside_is_never_trusted() -> None:
    calls = [
        call
        for folder in ("turnwise", "tasks", "flows")
        for path in (ROOT / folder).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr == "from_pretrained"
        # A generation configuration is data alone.
        if ast.unparse(call.func) != "GenerationConfig.from_pretrained"
    ]
    assert len(calls) > 5
    for call in calls:
        assert "trust_remote_code=False" in ast.unparse(call)


def test_a_revision_of_what_has_none_is_refused(model: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-revision-without-hub"):
        pretrained(policy(model, "main"))
    with pytest.raises(ConfigurationError, match=r"'main'.*TW-revision-without-hub"):
        load(PARAMETERS, settings=["policy.revision=main"])
