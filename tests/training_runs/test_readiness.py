"""What a run needs at its end is looked at before its first stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import turnwise as tw
from flows.runtime.server import free_port
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.architecture import create_policy
from turnwise.policy.tokenizer import ChatFrame, load_tokenizer, train_tokenizer
from turnwise.tracking.database import require_store
from turnwise.training_runs.readiness import require_model

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"


def by_its_files(experiment: Experiment) -> None:
    require_model(experiment, thoroughly=False)


def refused(*settings: str, ask: Callable[..., object] | None = None) -> str:
    """What is said of a model by transformers; a check of the files alone must refuse it, too."""
    said = []
    for check in (ask,) if ask else (by_its_files, require_model):
        with pytest.raises(ConfigurationError) as caught:
            check(load(PARAMETERS, settings=settings))
        assert len(str(caught.value).splitlines()) == 1
        said.append(str(caught.value))
    return said[-1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A small model as others publish theirs, with heads that vLLM's kernels refuse."""
    tokenizer = train_tokenizer(["a text to learn from"] * 8, 320, ["<think>"])
    folder = tmp_path / "published"
    create_policy(
        folder,
        vocabulary_size=320,
        context_length=512,
        end_token=ChatFrame(tokenizer).end_tokens[0],
        pad_token=2,
        seed=0,
        hidden=32,
        layers=1,
        heads=2,
        key_value_heads=1,
        feed_forward=32,
    )
    tokenizer.save_pretrained(folder)
    return folder


def changed(folder: Path, file: str, **values: object) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def model(folder: Path) -> tuple[str, ...]:
    return (f"policy.model={folder}", "compute.engine=embedded", "data.demonstrations=1")


def test_a_model_that_can_be_used_is_taken_whatever_its_generation_configuration(published: Path, home: Path) -> None:
    changed(published, "generation_config.json", temperature=0.7)
    for check in (by_its_files, require_model):
        check(load(PARAMETERS, settings=model(published)))
    assert not home.exists()


def test_heads_that_vllm_refuses_are_refused_for_vllm_alone(published: Path) -> None:
    assert "set compute.engine to embedded" in refused(f"policy.model={published}")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", "{", "config.json"),
        ("config.json", "[]", "config.json"),
        ("config.json", "{}", "config.json"),
        ("config.json", '{"model_type": "t5"}', "causal language model"),
        ("model.safetensors", "weights", "must be whole"),
        ("model.safetensors", "", "must be whole"),
        ("chat_template.jinja", "", "chat template"),
        ("chat_template.jinja", "{% for %}", "chat template"),
        ("chat_template.jinja", "{{ messages[0].content }}", "chat template"),
        ("tokenizer.json", "{}", "its tokenizer"),
        ("generation_config.json", "{", "generation_config.json"),
        ("generation_config.json", '{"max_new_tokens": -1}', "generation_config.json"),
        ("generation_config.json", '{"eos_token_id": [1, 320]}', "end tokens must be tokens of the policy's tokenizer"),
        ("generation_config.json", '{"eos_token_id": "<|im_end|>"}', "eos_token_id"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_in_one_sentence(
    published: Path, file: str, content: str, says: str
) -> None:
    (published / file).write_text(content)
    assert says in refused(*model(published))


def test_switches_that_the_template_does_not_read_are_refused(published: Path) -> None:
    said = refused(*model(published), "policy.chat_template_kwargs={enable_thinking: false}")
    assert "must be switches that the policy's chat template reads; 'enable_thinking'" in said


def test_a_template_without_functions_is_refused_for_native_tools(published: Path) -> None:
    said = refused(*model(published), "agent.format=native-tools")
    assert "a chat template that shows functions" in said and said.endswith("[TW-functions-not-shown]")


def test_a_model_that_brings_code_of_its_own_is_refused_and_none_of_it_runs(published: Path, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
    (published / "configuration_own.py").write_text(code)
    own = {"AutoConfig": "configuration_own.OwnConfig", "AutoTokenizer": ["configuration_own.OwnTokenizer", None]}
    changed(published, "config.json", model_type="own", auto_map=own)
    assert "contains custom code" in refused(*model(published))
    changed(published, "config.json", model_type="qwen3")
    changed(published, "tokenizer_config.json", auto_map=own)
    require_model(load(PARAMETERS, settings=model(published)))
    assert not (tmp_path / "ran").exists(), "what transformers knows itself is read without the folder's code"


def test_a_model_that_was_downloaded_in_part_is_refused(published: Path) -> None:
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (published / "model.safetensors").rename(published / parts["a"])
    (published / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    said = refused(*model(published))
    assert "1 of 2 are missing, model-00002-of-00002.safetensors among them" in said
    (published / "model.safetensors.index.json").write_text("{}")
    assert "model.safetensors.index.json" in refused(*model(published))


def test_a_context_longer_than_the_models_positions_is_refused(published: Path) -> None:
    assert "agent.context_tokens must be at most" in refused(*model(published), "agent.context_tokens=513")


def test_the_tokenizer_of_a_larger_model_is_refused(published: Path) -> None:
    train_tokenizer(["a longer text to learn from"] * 8, 340, ["<think>"] * 4).save_pretrained(published)
    larger = load_tokenizer(published)
    larger.add_tokens([f"<{number}>" for number in range(100)])
    larger.save_pretrained(published)
    assert "must have no more tokens than the model, 320" in refused(*model(published))


def test_a_tracking_store_that_cannot_be_opened_is_refused_before_the_first_stage(tmp_path: Path, home: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at as one" * 20)
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").write_text("")
    port = free_port()
    uris = [f"sqlite:///{tmp_path / name}" for name in ("text.db", "folder.db", "file/mlflow.db")]
    for uri in (*uris, f"http://127.0.0.1:{port}"):
        said = refused(f"tracking.uri={uri}", ask=lambda experiment: tw.ablation(experiment, quiet=True))
        assert "tracking.uri" in said
    assert not (home / "store").exists()


def test_a_store_that_is_not_there_is_made(home: Path) -> None:
    require_store(f"sqlite:///{home / 'mlflow.db'}")
    assert (home / "mlflow.db").is_file()
