"""MLflow's client waits for a database that is being restarted, and for nothing else."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.own_view import let_see
from tests.postgres_server import running
from turnwise.errors import TrackingUnreachable
from turnwise.tracking import Recorder, client
from turnwise.tracking.client import UNAVAILABLE, PatientClient, TrackingClient
from turnwise.tracking.runs import IterationMetrics

URI = "postgresql+psycopg://turnwise:secret@db.lab:5432/mlflow"


class Unavailable(Exception):
    error_code = UNAVAILABLE


class Unsteady:
    """A client whose first calls fail."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def get(self, value: int) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, none of which takes time."""
    pauses: list[float] = []
    let_see(monkeypatch, client, "time", sleep=pauses.append, monotonic=lambda: sum(pauses))
    return pauses


def test_a_call_is_repeated_while_the_database_is_away_and_that_is_said_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    assert PatientClient(lambda: Unsteady(Unavailable(), Unavailable()), URI).get(3) == 3
    assert clock == [0.2, 0.4]
    assert [each.getMessage() for each in caplog.records] == [
        "the database at db.lab:5432 does not answer, and is waited for"
    ]


def test_another_error_is_raised_at_once_and_a_database_that_stays_away_after_a_while(clock: list[float]) -> None:
    with pytest.raises(KeyError):
        PatientClient(lambda: Unsteady(KeyError()), URI).get(3)
    assert clock == []
    with pytest.raises(TrackingUnreachable, match=r"db\.lab:5432.*\b120\b.*TW-tracking-unreachable"):
        PatientClient(lambda: Unsteady(*[Unavailable() for _ in range(99)]), URI).get(3)
    assert sum(clock) <= client.SECONDS_FOR_A_RESTART


def test_postgresql_that_is_restarted_between_and_during_writes_loses_no_metric_and_doubles_none(
    tmp_path: Path,
) -> None:
    with running() as server:
        uri = f"postgresql+psycopg://{server.make('mlflow')}"
        recorder = Recorder(uri, "tried", tmp_path / "artifacts")
        run = recorder.parent("ablation", "identity", {})

        def write(iteration: int) -> None:
            run.log_iterations([IterationMetrics(iteration, {"loss": iteration / 2, "success": 0.5})])

        write(1)
        server.stop()
        server.start()
        write(2)
        server.stop()
        later = threading.Thread(target=lambda: (time.sleep(1.0), server.start()))
        later.start()
        write(3)
        later.join()
        write(3)
        history: Any = TrackingClient(uri).get_metric_history(run.id, "loss")
        assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 1.0), (3, 1.5)]
        assert Recorder(uri, "tried", None).parent("ablation", "identity", {}).id == run.id
