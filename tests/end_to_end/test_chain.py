"""The whole chain on a tiny ablation: real Prefect, real vLLM where it is installed, real MLflow, two variants.

Each test states one promise: the same digests again, reuse of what is the same, repair of what is damaged, one record.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from comparison import compared, tiny_experiment
from project_copy import ROOT, TINY
from safetensors.torch import load_file

from tests.stage_calls import stage_calls
from turnwise.data.trajectory_files import success_of
from turnwise.experiment import Experiment
from turnwise.store import Reference, default_store
from turnwise.tracking.finding import find_runs

pytestmark = [pytest.mark.engine, pytest.mark.chain]

ENGINE = f"compute.engine={'vllm' if find_spec('vllm') else 'embedded'}"


def tiny(*settings: str) -> Experiment:
    return tiny_experiment([ENGINE, *settings])


@dataclass(frozen=True)
class Calls:
    """Which stages an ablation computed and which it found, by name."""

    computed: list[str]
    found: list[str]


def run(experiment: Experiment, results: Path) -> tuple[str, Calls]:
    """The digest of an ablation, and its stage calls."""
    with stage_calls() as calls:
        digest = compared(experiment, results).digest
    return digest, Calls(*([call.stage for call in calls if call.cached == cached] for cached in (False, True)))


@pytest.fixture(scope="module")
def computed(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A home in which the tiny ablation has been run once, and its digest."""
    home = tmp_path_factory.mktemp("computed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        digest, calls = run(tiny(), home / "results")
    assert calls.computed.count("update") == 4 and not calls.found.count("update")
    yield home, digest


@contextmanager
def tracking_at(address: str) -> Iterator[None]:
    """MLflow's own functions in the block read this database."""
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(address)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)


def test_the_best_policy_is_registered_once_and_is_opened_by_mlflow(
    computed: tuple[Path, str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import mlflow.transformers

    for _ in range(2):
        digest, calls = run(tiny("tracking.register_as=tiny-agent"), tmp_path / "results")
        assert digest == computed[1] and not calls.computed
    address = f"sqlite:///{home / 'mlflow.db'}"
    client = mlflow.MlflowClient(address)
    (version,) = client.search_model_versions("name = 'tiny-agent'")
    runs = [each for each in find_runs(address) if str(each.artifacts.final_policy) == version.tags["turnwise.policy"]]
    success = {each.id: success_of(each.artifacts.iterations[-1]["evaluation"]) for each in find_runs(address)}
    assert version.run_id in {each.id for each in runs} and success[version.run_id] == max(success.values())
    assert client.get_model_version_by_alias("tiny-agent", "best").version == version.version
    linked = json.loads(client.get_logged_model(version.source.removeprefix("models:/")).tags["mlflow.modelVersions"])
    assert linked == [{"name": "tiny-agent", "version": version.version}], "MLflow's list of models names it, once"
    with tracking_at(address):
        pipeline = mlflow.transformers.load_model("models:/tiny-agent@best")
        answers = mlflow.pyfunc.load_model("models:/tiny-agent@best")
        saved = mlflow.models.get_model_info("models:/tiny-agent@best")
    assert saved.flavors["transformers"]["source_model_name"] == "tiny-agent"
    asked = [{"role": "user", "content": "hello"}]
    reply = pipeline(asked, max_new_tokens=4, do_sample=False)[0]["generated_text"][-1]
    assert reply["role"] == "assistant"
    (answer,) = answers.predict({"messages": asked, "max_tokens": 4})
    assert answer["choices"][0]["message"]["role"] == "assistant"
    weights = load_file(default_store().folder(runs[0].artifacts.final_policy) / "model.safetensors")
    opened = pipeline.model.state_dict()
    assert all((opened[name] == values).all() for name, values in weights.items())


@pytest.fixture
def home(computed: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that home, for a test to change."""
    copied = tmp_path / "home"
    shutil.copytree(computed[0], copied)
    monkeypatch.setenv("TURNWISE_HOME", str(copied))
    return copied


def children(home: Path) -> list[dict[str, object]]:
    """Every MLflow run: its name, status, tags and metrics with their histories."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    found = []
    for experiment in client.search_experiments():
        for entity in client.search_runs([experiment.experiment_id]):
            history = {name: client.get_metric_history(entity.info.run_id, name) for name in entity.data.metrics}
            found.append({"name": entity.info.run_name, "status": entity.info.status, "history": history})
    return found


def test_two_runs_with_the_same_parameters_give_the_same_digests(
    computed: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "another"))
    digest, calls = run(tiny(), tmp_path / "results")
    assert digest == computed[1]
    assert calls.computed.count("rollout") > 0


def test_a_repeat_computes_nothing_and_records_nothing(home: Path, computed: tuple[Path, str]) -> None:
    before = children(home)
    digest, calls = run(tiny(), home / "results")
    assert digest == computed[1]
    assert calls.computed == []
    after = children(home)
    assert len(after) == len(before) == 3  # a parent, and a child per variant
    assert [sorted(run["history"]) for run in after] == [sorted(run["history"]) for run in before]


def test_every_iteration_of_every_run_is_recorded_once(computed: tuple[Path, str]) -> None:
    runs = {str(run["name"]): run for run in children(computed[0])}
    assert all(run["status"] == "FINISHED" for run in runs.values())
    of_variants = [run for name, run in runs.items() if "seed" in name]
    assert len(of_variants) == 2
    for run in of_variants:
        history = run["history"]
        for metric in (
            "update/mismatch_nats",
            "update/gradient_norm",
            "credit/zero_variance_groups",
            "seconds/sampling",
            "monitor/entropy_nats",
            "rollout/reward/goal",
            "rollout/reward/invalid_turn",
        ):
            assert [point.step for point in history[metric]] == [1, 2], metric


def test_every_test_episode_is_a_row_of_mlflows_tables(home: Path) -> None:
    import mlflow

    address = f"sqlite:///{home / 'mlflow.db'}"
    runs, client = find_runs(address), mlflow.MlflowClient(address)
    with tracking_at(address):
        experiment = client.get_run(runs[0].id).info.experiment_id
        table = client.load_table(experiment, "test_episodes.json", extra_columns=["run_id"])
    assert set(table["run_id"]) == {each.id for each in runs} and len(runs) == 2
    for run in runs:
        assert run.artifacts.test is not None
        rows = table[(table["run_id"] == run.id) & (table["replies"] == "sampled")]
        metrics = default_store().metrics(run.artifacts.test)
        assert rows["success"].mean() == pytest.approx(metrics["sampled/success"])
        assert rows["reward/goal"].mean() == pytest.approx(metrics["sampled/reward/goal"])
        assert len(rows) == tiny().data.test_tasks * tiny().evaluation.samples


def test_engine_and_learner_agree_at_every_update(computed: tuple[Path, str]) -> None:
    for run in children(computed[0]):
        for point in run["history"].get("update/mismatch_nats", []):
            assert point.value < 1e-5


def test_a_number_of_the_report_leads_back_to_the_task_sets_and_the_commit(
    computed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.commands import cli

    monkeypatch.setenv("TURNWISE_HOME", str(computed[0]))
    monkeypatch.setenv("COLUMNS", "80")
    cli.run(["lineage", "mt-grpo/success", "--of", "tiny"])
    told = capsys.readouterr().out
    for expected in (
        "mt-grpo/success = ",
        "run mt-grpo seed 1",
        "task sets train ",
        "(update, iteration 2)",
        "(iteration 2, seed 1, temperature 1.0",
        "earlier updates: 1, from",
        "(warm_start",
        "by commit ",
    ):
        assert expected in told, told
    assert max(map(len, told.splitlines())) <= 80


def test_the_variants_of_one_seed_are_laid_beside_each_other_without_a_verdict(
    computed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.commands import cli

    monkeypatch.setenv("TURNWISE_HOME", str(computed[0]))
    cli.run(["compare", "tiny"])
    told = capsys.readouterr().out
    assert "not decided" in told and "2 iterations" in told and "tokens" in told


def test_changing_the_estimator_reuses_what_does_not_depend_on_it(home: Path) -> None:
    changed = tiny("variants.mt-grpo={credit: {options: {rewards: merged, epsilon: 0.01}}}")
    _, calls = run(changed, home / "results")
    assert not {"task_set", "demonstrations", "tokenizer", "initial_policy", "warm_start", "baseline"} & set(
        calls.computed
    )
    assert calls.found.count("rollout") == 3  # both of the variant that stayed, and the first of the one that changed
    assert calls.computed.count("rollout") == 1
    assert calls.computed.count("credit") == 2


def test_a_deleted_and_a_damaged_artifact_are_computed_again_with_a_warning(
    home: Path, computed: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    store = default_store()
    rollouts = sorted((store.root / "rollout").glob("*/manifest.json"))
    shutil.rmtree(rollouts[0].parent)
    (rollouts[1].parent / "turns.parquet").write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        digest, calls = run(tiny(), home / "results")
    assert digest == computed[1]
    assert calls.computed.count("rollout") >= 2 and "update" not in calls.computed
    lost = Reference(kind="rollout", digest=rollouts[0].parent.name)
    assert any(str(lost) in message for message in caplog.messages)


def test_a_directory_can_hold_the_policy_and_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: str
) -> None:
    from turnwise.policy.architecture import create_policy
    from turnwise.policy.tokenizer import ChatFrame, train_tokenizer

    tokenizer = train_tokenizer(["Left Right Up Down P _ O G goal is right 2 down 1"] * 8, 300, ["<think>", "</think>"])
    tokenizer.save_pretrained(tmp_path / "model")
    create_policy(
        tmp_path / "model",
        vocabulary_size=len(tokenizer),
        context_length=256,
        end_token=ChatFrame(tokenizer).end_tokens[0],
        pad_token=tokenizer.pad_token_id,
        seed=3,
        hidden=64,
        layers=1,
        heads=2,
        feed_forward=64,
    )
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    settings = (
        "compute.engine=embedded",
        f"policy.model={tmp_path / 'model'}",
        "warm_start.enabled=false",
        "optimization.iterations=1",
    )
    _, calls = run(tiny(*settings), tmp_path / "results")
    assert "warm_start" not in calls.computed and "update" in calls.computed
    store = default_store()
    policies = sorted((store.root / "policy").glob("*/config.json"))
    assert any('"num_hidden_layers": 1' in path.read_text() for path in policies)


def test_a_run_that_was_killed_ends_with_the_digests_of_one_that_was_not(
    computed: tuple[Path, str], prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "killed"
    environment = {**os.environ, "TURNWISE_HOME": str(home), "PREFECT_API_URL": prefect_server, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "flows.commands.cli", "ablation", str(TINY), "-s", ENGINE]
    with (tmp_path / "output").open("wb") as output:
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        deadline = time.monotonic() + 500
        while len(list((home / "store" / "rollout").glob("*/manifest.json"))) < 2:  # the second iteration has begun
            assert started.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
            time.sleep(0.02)
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    monkeypatch.setenv("TURNWISE_HOME", str(home))
    digest, calls = run(tiny(), home / "results")
    assert digest == computed[1]  # also across hash seeds: the killed half ran under another one
    assert "warm_start" in calls.found and "update" in calls.computed
    assert all(run["status"] == "FINISHED" for run in children(home))
    steps = [point.step for run in children(home) for point in run["history"].get("update/mismatch_nats", [])]
    assert sorted(steps) == [1, 1, 2, 2]


def test_the_episodes_of_a_recorded_run_are_shown_in_the_terminal_and_on_a_page(
    computed: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.commands import cli

    monkeypatch.setenv("TURNWISE_HOME", str(computed[0]))
    monkeypatch.setenv("COLUMNS", "120")

    def show(*arguments: str) -> str:
        cli.run(["show", *arguments])
        return capsys.readouterr().out

    batch = show("mt-grpo seed 1")
    assert "training batch 2" in batch and "advantage" in batch
    assert "shown: 4 of 32 such episodes" in batch
    task = show("mt-grpo seed 1", "--split", "validation", "--mode", "greedy", "--limit", "3")
    ends = ("0 iterations", "1 iteration", "2 iterations")
    assert [f"after {end}, greedy" in task for end in ends] == [True] * 3
    (heading,) = [line for line in show("mt-grpo seed 1", "--against", "oracle").splitlines()[:2] if "seed 1" in line]
    assert "oracle · test task set, sampled" in heading
    told = show("tiny", "--html", str(tmp_path / "episodes.html"), "--limit", "60")
    text = (tmp_path / "episodes.html").read_text()
    assert told.startswith(f"{text.count('<article')} of ") and 0 < text.count("<article") <= 60
    for policy in ("grpo-or seed 1", "mt-grpo seed 1", "warm start", "oracle", "random"):
        assert f'data-policy="{policy}"' in text
