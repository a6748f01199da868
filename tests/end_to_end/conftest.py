"""What several end-to-end tests begin with, computed once for all test processes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from comparison import Computed, compared, tiny_experiment
from every_rule import WORLDS, experiment
from shared_folder import shared_folder

from flows.prepare import prepare_materials, prepare_policy
from turnwise.training_runs.state import Prepared


@pytest.fixture(scope="session")
def tiny_ablation(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Computed:
    """The tiny ablation, computed by the test process that first needs it. Copy what is to be changed."""
    with shared_folder(tmp_path_factory, "tiny_ablation") as folder, pytest.MonkeyPatch.context() as patch:
        home, results, digest = (folder / name for name in ("home", "results", "digest"))
        if not digest.exists():
            patch.setenv("TURNWISE_HOME", str(home))
            digest.write_text(compared(tiny_experiment(), results, drawn=True).digest)
        return Computed(home, results, digest.read_text())


@pytest.fixture(scope="session")
def prepared(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Prepared, Path]:
    """What every run of a tiny experiment starts from, and the home that holds it and no more. Copy it to run there."""
    with shared_folder(tmp_path_factory, "prepared") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder / "home"))
        chosen = tiny_experiment()
        return prepare_policy(chosen, prepare_materials(chosen)), folder / "home"


@pytest.fixture
def fresh(prepared: tuple[Prepared, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """What every run of a tiny experiment starts from, in a home of the test's own."""
    shutil.copytree(prepared[1], tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    return prepared[0]


@pytest.fixture(scope="session")
def shared_rules_home(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for every rule in every test process: what is prepared is computed once for each world."""
    with shared_folder(tmp_path_factory, "every_rule") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder / "home"))
        for world in WORLDS:
            chosen = experiment(world, {})
            prepare_policy(chosen, prepare_materials(chosen))
        return folder / "home"


@pytest.fixture
def rules_home(shared_rules_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home in which every rule trains; the first rollout is computed once, too."""
    monkeypatch.setenv("TURNWISE_HOME", str(shared_rules_home))
