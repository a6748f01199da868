"""What a plan refuses, a run refuses as early: before large libraries are loaded and Prefect's server is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.experiment import load
from turnwise.policy.device_memory import has_card
from turnwise.policy.pretrained import BASE_POLICIES
from turnwise.store import run_environment
from turnwise.store.run_environment import BFLOAT16_FLAGS
from turnwise.training_runs.readiness import require_machine, require_precision

PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
WORLD = Path(__file__).parents[2] / "experiments" / "worlds" / "bandit.yaml"
EMBEDDED = ("compute.engine=embedded",)
HEAVY = {"torch", "transformers", "vllm", "mlflow", "prefect"}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder of a small model, as others publish theirs."""
    return shutil.copytree(BASE_POLICIES / "base-1m", tmp_path / "published")


@dataclass(frozen=True)
class Ended:
    """How a command ended, what it said, and which of the large libraries it had imported."""

    status: int
    output: str
    message: str
    loaded: set[str]


def turnwise(home: Path, *arguments: str) -> Ended:
    command = ["-X", "importtime", "-m", "flows.commands.cli", "ablation", "--parameters", str(PARAMETERS), str(WORLD)]
    ended = subprocess.run(
        [sys.executable, *command, *arguments],
        env={**os.environ, "TURNWISE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    imports, said = [], []
    for line in ended.stderr.splitlines():
        (imports if line.startswith("import time:") else said).append(line)
    loaded = {line.rpartition("|")[2].strip() for line in imports}
    assert "flows.commands.cli" in loaded or "typer" in loaded
    return Ended(ended.returncode, ended.stdout, said[-1] if said else "", HEAVY & loaded)


def settings(*each: str) -> list[str]:
    return [part for setting in (*EMBEDDED, *each) for part in ("-s", setting)]


@pytest.mark.parametrize("model", ["scratch", "base-1m", "a folder"])
def test_a_plan_imports_neither_prefect_nor_torch_nor_transformers(published: Path, tmp_path: Path, model: str) -> None:
    named = str(published) if model == "a folder" else model
    ran = turnwise(tmp_path / "home", "--dry-run", *settings(f"policy.model={named}"))
    assert ran.status == 0, ran.message
    assert "It fits." in ran.output and not ran.loaded


@pytest.mark.parametrize("planned", [True, False], ids=["plan", "run"])
@pytest.mark.parametrize("file", ["chat_template.jinja", "model.safetensors", "tokenizer.json"])
def test_a_model_that_cannot_be_used_is_refused_by_plan_and_run_before_anything_is_loaded(
    published: Path, tmp_path: Path, file: str, planned: bool
) -> None:
    (published / file).unlink()
    ran = turnwise(tmp_path / "home", *["--dry-run"] * planned, *settings(f"policy.model={published}"))
    assert ran.status == 2 and not ran.loaded
    assert ran.message.startswith("turnwise: policy.model") and str(published) in ran.message
    assert not (tmp_path / "home" / "prefect").exists()


@pytest.mark.skipif(has_card(), reason="this machine may have a card")
def test_a_run_on_a_card_that_is_not_there_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    ran = turnwise(tmp_path / "home", *settings("compute.device=cuda"))
    assert ran.status == 2 and not ran.loaded
    assert "the device cuda must be there" in ran.message


@pytest.mark.parametrize(
    ("flags", "refused"), [(["avx2"], True), ([], False), *[([name], False) for name in BFLOAT16_FLAGS]]
)
def test_bfloat16_is_refused_on_a_processor_that_is_known_to_lack_it(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], refused: bool
) -> None:
    monkeypatch.setattr("turnwise.store.run_environment.platform", lambda: {"processor": {"flags": flags}})
    compute = load(PARAMETERS, settings=[*EMBEDDED, "compute.precision=bfloat16"]).compute
    if not refused:
        require_precision(compute)
        return
    with pytest.raises(ConfigurationError, match="TW-no-bfloat"):
        require_precision(compute)


def test_too_little_memory_is_refused_before_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.training_runs.memory.device_bytes", lambda device: 2**20)
    with pytest.raises(ConfigurationError, match="TW-small-memory"):
        require_machine(load(PARAMETERS, settings=EMBEDDED))


def test_the_flags_that_are_looked_for_are_recorded_of_a_processor() -> None:
    assert run_environment.KERNEL_FLAGS.issuperset(BFLOAT16_FLAGS)
