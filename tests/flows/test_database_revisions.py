"""An MLflow database that another version of MLflow made is refused by every command, in one sentence that fits it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.commands.cli import status_of
from turnwise.errors import ConfigurationError
from turnwise.store.sqlite_files import sqlite_address
from turnwise.tracking.database import prepare_database, require_store
from turnwise.tracking.finding import find_runs

ROOT = Path(__file__).parents[2]
OLDER = "bf29a5ff90ea"
"""A revision that MLflow had before the one that is known here."""
NEWER = "0123456789ab"
"""None that the installed MLflow knows."""
COMMANDS = (
    ("show",),
    ("compare",),
    ("lineage", "test/sampled/success"),
    ("ablation",),
    ("sweep", "-s", "optimization.learning_rate=1e-4,2e-4"),
    ("ui",),
    ("export", "one seed 1", "--to", "no such folder"),
    ("reproduce", "one seed 1"),
    ("ablation", "--dry-run"),
)


def of_revision(home: Path, revision: str) -> Path:
    path = home / "mlflow.db"
    prepare_database(sqlite_address(path))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("revision", "advice"), [(OLDER, "mlflow db upgrade"), (NEWER, "install that version")])
def test_every_command_says_what_to_do_with_a_database_of_another_mlflow(
    command: tuple[str, ...],
    revision: str,
    advice: str,
    turnwise_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    path = of_revision(turnwise_home, revision)
    before = path.read_bytes()
    assert status_of(command) == 2
    *_, said = capsys.readouterr().err.splitlines()
    assert advice in said and revision in said and str(path) in said
    assert path.read_bytes() == before


@pytest.mark.parametrize("revision", [OLDER, NEWER])
def test_a_database_of_another_mlflow_is_no_damage(
    revision: str, turnwise_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = of_revision(turnwise_home, revision)
    before = path.read_bytes()
    assert status_of(("verify",)) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(("revision", "advice"), [(OLDER, "an older one"), (NEWER, "a newer MLflow")])
def test_an_old_database_that_lacks_a_table_is_not_migrated_without_a_copy(
    revision: str, advice: str, tmp_path: Path
) -> None:
    path = of_revision(tmp_path, revision)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE jobs")
    before, uri = path.read_bytes(), sqlite_address(path)
    for opened in (require_store, find_runs, prepare_database):
        with pytest.raises(ConfigurationError, match=advice):
            opened(uri)
    assert path.read_bytes() == before


def test_the_password_of_a_database_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.tracking import database

    monkeypatch.setattr(database, "_revision", lambda uri: OLDER)
    with pytest.raises(ConfigurationError, match=r"upgrade 'postgresql://me:\*\*\*@machine/mlflow'") as refused:
        database.require_readable("postgresql://me:hidden@machine/mlflow")
    assert "hidden" not in str(refused.value)
