"""Two machines with a shared store: what a stage has returned on one is found on the other, and no secret is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from tasks.caching import cache_key, depends_on
from tasks.orchestration.deferred import task
from tests.store.conftest import SECRET, s3, s3_of_session, url  # noqa: F401  (fixtures)
from tests.store.s3_server import S3Server, failing
from turnwise.errors import StoreUnreachable
from turnwise.project import home
from turnwise.store import Reference, default_store, place
from turnwise.store.default import use_storage
from turnwise.store.stage_records import records_folder

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")

computed: list[float] = []


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: float = 1.0


@task(name="quinces", task_run_name="{label}: quinces", retries=1)
@depends_on()
def quinces(parameters: Parameters, *, before: Reference | None = None, label: str = "quinces") -> Reference:
    """A stage."""
    computed.append(parameters.value)
    if before is not None:
        default_store().folder(before)
    with default_store().write("pear") as draft:
        (draft.folder / "weight").write_text(str(parameters.value))
    return draft.reference


@pytest.fixture
def shared(url: str) -> Iterator[None]:  # noqa: F811
    computed.clear()
    use_storage(url, None)
    yield
    use_storage("", None)


def on_another_machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TURNWISE_HOME", str(home().parent / name))


@pytest.mark.usefixtures("shared")
def test_what_one_machine_has_computed_another_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    first = quinces(Parameters())
    on_another_machine(monkeypatch, "other")
    assert quinces(Parameters()) == first
    second = quinces(Parameters(value=2.0), before=first)
    assert computed == [1.0, 2.0]
    on_another_machine(monkeypatch, "third")
    assert quinces(Parameters(value=2.0), before=first) == second
    assert computed == [1.0, 2.0]
    assert not (home() / "store" / str(second) / "weight").exists(), "it was not needed"


def test_the_place_of_the_store_is_no_part_of_the_key(tmp_path: Path) -> None:
    here = cache_key(quinces, Parameters())
    use_storage(str(tmp_path), 1.0)
    try:
        assert cache_key(quinces, Parameters()) == here
    finally:
        use_storage("", None)


def test_credentials_are_kept_nowhere(shared: None, s3: S3Server) -> None:  # noqa: F811
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET
    quinces(Parameters(value=3.0))
    kept = {path: path.read_bytes() for path in home().rglob("*") if path.is_file()} | s3.objects()
    assert len(kept) > 8
    for secret in (SECRET, os.environ["AWS_ACCESS_KEY_ID"]):
        assert [name for name, content in kept.items() if secret.encode() in content] == []


def test_a_server_that_stays_away_stops_the_stage_and_a_restart_goes_on(
    shared: None,
    s3: S3Server,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = quinces(Parameters(value=4.0))
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.01)
    s3.trouble = failing(10**6)
    with pytest.raises(StoreUnreachable, match="TW-store-unreachable"):
        quinces(Parameters(value=5.0), before=first)
    s3.trouble = lambda request: None
    assert not (records_folder() / cache_key(quinces, Parameters(value=5.0), before=first)).exists()
    quinces(Parameters(value=5.0), before=first)
    assert quinces(Parameters(value=4.0)) == first and computed.count(4.0) == 1
