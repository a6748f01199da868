"""Prefect's records: one that is not what its stage wrote under its key is not used, and says so."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tasks.caching import cache_key, depends_on
from tasks.orchestration.deferred import task
from turnwise.errors import ArtifactError
from turnwise.store import Reference, default_store
from turnwise.store.stage_records import recorded, recorded_keys, records_folder

pytestmark = pytest.mark.usefixtures("prefect_server", "turnwise_home")

computed: list[str] = []


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: float = 1.0


def write(kind: str, value: float) -> Reference:
    computed.append(kind)
    with default_store().write(kind) as draft:
        draft.metrics["value"] = value
    return draft.reference


@task(name="apples", task_run_name="{label}: apples", retries=1)
@depends_on()
def apples(parameters: Parameters, *, label: str = "apples") -> Reference:
    """A stage."""
    return write("apple", parameters.value)


@task(name="apples_too", task_run_name="{label}: apples_too", retries=1)
@depends_on()
def apples_too(parameters: Parameters, *, label: str = "apples_too") -> Reference:
    """Another stage, which returns the same kind."""
    return write("apple", parameters.value * 10)


@task(name="pears", task_run_name="{label}: pears", retries=1)
@depends_on()
def pears(parameters: Parameters, *, label: str = "pears") -> Reference:
    """Another stage, which returns another kind."""
    return write("pear", parameters.value)


def record_of(called: Any, value: float = 1.0) -> Path:
    return records_folder() / cache_key(called, Parameters(value=value))


@pytest.mark.parametrize(
    "other", [(apples, 2.0), (apples_too, 1.0), (pears, 1.0)], ids=["another call", "another stage", "another kind"]
)
def test_a_record_copied_over_another_is_noticed_and_computed_again(
    other: tuple[Any, float], caplog: pytest.LogCaptureFixture
) -> None:
    expected = apples(Parameters())
    called, value = other
    called(Parameters(value=value))
    intact = record_of(called, value).read_bytes()
    record_of(apples).write_bytes(intact)
    computed.clear()
    with caplog.at_level(logging.WARNING):
        assert apples(Parameters()) == expected
    assert computed == ["apple"]
    (message,) = [entry.message for entry in caplog.records if "computed again" in entry.message]
    assert "must name what was computed under its own key" in message and str(record_of(apples)) in message
    assert apples(Parameters()) == expected and computed == ["apple"], "the record is put right"
    assert record_of(called, value).read_bytes() == intact, "the copied one stays as it was"


def test_one_content_made_in_two_ways_may_have_either_record() -> None:
    same = apples(Parameters(value=10))
    assert apples_too(Parameters(value=1)) == same
    record_of(apples, 10).write_bytes(record_of(apples_too, 1).read_bytes())
    computed.clear()
    assert apples(Parameters(value=10)) == same and computed == []


ALTERED = {
    "pickle": lambda record: pickle.dumps(record),
    "another class": lambda record: json.dumps({"__class__": "subprocess.Popen", "data": record}).encode(),
    "no reference": lambda record: b"3",
    "no digest": lambda record: json.dumps({"kind": record["kind"], "name": record["digest"]}).encode(),
    "a list": lambda record: b"[]",
}


@pytest.mark.parametrize("how", ALTERED)
def test_a_record_that_no_stage_writes_is_neither_decoded_nor_used(how: str, caplog: pytest.LogCaptureFixture) -> None:
    expected = apples(Parameters())
    record_of(apples).write_bytes(ALTERED[how](json.loads(record_of(apples).read_bytes())))
    with pytest.raises(ArtifactError, match="TW-damaged-record"):
        recorded(cache_key(apples, Parameters()), default_store())
    computed.clear()
    with caplog.at_level(logging.WARNING):
        assert apples(Parameters()) == expected
    assert computed == ["apple"]
    assert any("cannot be read" in entry.message for entry in caplog.records)


def test_what_is_recorded_is_found_by_its_key() -> None:
    assert list(recorded_keys()) == []
    assert recorded(cache_key(apples, Parameters()), default_store()) is None
    references = [called(Parameters()) for called in (pears, apples)]
    keys = list(recorded_keys())
    assert keys == [cache_key(apples, Parameters()), cache_key(pears, Parameters())]
    assert [recorded(key, default_store()) for key in reversed(keys)] == references
