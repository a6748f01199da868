"""An ablation whose store is on a real S3 server: the results of a folder, and another machine finds all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from comparison import Computed, compared, tiny_experiment

from tests.store.s3_server import BUCKET, S3Server, running
from turnwise.store import shared
from turnwise.store.default import CACHE_VARIABLE, URL_VARIABLE

pytestmark = pytest.mark.chain

MEGABYTE = 10**6
SECRET = "AbCdSecretKeyOfNobody1234567890"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with running() as server:
        yield from server.for_one_test(monkeypatch, SECRET)


def local_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in (home / "store").rglob("*") if path.is_file())


def test_an_ablation_on_s3_is_that_of_a_folder_and_another_machine_computes_nothing(
    tiny_ablation: Computed, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "STAYS_FOR_SECONDS", 0.0)
    monkeypatch.setenv(URL_VARIABLE, f"s3://{BUCKET}/lab/turnwise")
    monkeypatch.setenv(CACHE_VARIABLE, str(2 * MEGABYTE / 1e9))
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setenv("TURNWISE_HOME", str(one))
    first = compared(tiny_experiment(), tmp_path / "results of one")
    assert first.digest == tiny_ablation.digest
    assert local_bytes(one) < 2.2 * MEGABYTE < local_bytes(tiny_ablation.home), "the local copy keeps its bound"
    monkeypatch.setenv("TURNWISE_HOME", str(two))
    again = compared(tiny_experiment(), tmp_path / "results of two")
    assert (again.digest, again.computed, again.found) == (first.digest, 0, first.computed + first.found)
    assert local_bytes(two) < local_bytes(one), "what is not read is not downloaded"
    assert not any(SECRET.encode() in content for content in s3.objects().values()), "keys are recorded nowhere"
