"""A store of the real MLflow, in a SQLite file of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.tracking import Recorder


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder enters its process into the home."""
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's schema, which takes seconds to make and none to copy."""
    path = tmp_path_factory.mktemp("mlflow") / "migrated.db"
    Recorder(f"sqlite:///{path}", "template")
    return path


@pytest.fixture
def open_recorder(migrated_database: Path, tmp_path: Path) -> Callable[[], Recorder]:
    """Open the same store, as a process does that starts again."""
    database = shutil.copy(migrated_database, tmp_path / "mlflow.db")
    return lambda: Recorder(f"sqlite:///{database}", "turnwise", tmp_path / "artifacts")
