"""A prefix of a bucket as a shared place, with a real S3 server that is also busy, slow and closed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.s3_server import S3Server, failing
from turnwise.errors import ConfigurationError, StoreUnreachable
from turnwise.store import place
from turnwise.store.place import BucketPlace


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketPlace]:
    monkeypatch.setattr(place, "FIRST_PAUSE_SECONDS", 0.01)
    yield BucketPlace(url)


def test_what_was_written_is_listed_read_copied_and_removed(bucket: BucketPlace, tmp_path: Path, s3: S3Server) -> None:
    bucket.write("store/a/b", b"12345")
    bucket.write("store/a.note", b"1")
    (tmp_path / "file").write_bytes(b"123")
    bucket.upload("store/a/", {"store/a/c/d": tmp_path / "file", "store/a/e": tmp_path / "file"})
    assert bucket.sizes("store/a") == {"store/a/b": 5, "store/a/c/d": 3, "store/a/e": 3, "store/a.note": 1}
    assert bucket.sizes("store/a/c") == {"store/a/c/d": 3}
    assert bucket.sizes("nothing/here") == {}
    assert bucket.read(["store/a/b", "store/x"]) == {"store/a/b": b"12345"}
    assert bucket.download("store/a/c/d", tmp_path / "copy") and (tmp_path / "copy").read_bytes() == b"123"
    assert not bucket.download("store/x", tmp_path / "copy of nothing")
    bucket.remove(["store/a/b", "store/a/e", "store/x"])
    assert bucket.sizes("store/a/") == {"store/a/c/d": 3}
    assert set(s3.objects()) == {"team/turnwise/store/a/c/d", "team/turnwise/store/a.note"}


def test_a_file_costs_a_request_to_write_and_the_look_at_it_another(bucket: BucketPlace, s3: S3Server) -> None:
    bucket.write("a", b"1")
    bucket.read(["a"])
    bucket.remove(["a"])
    assert s3.requests == ["PUT /lab/team/turnwise/a", "GET /lab", "GET /lab/team/turnwise/a", "POST /lab"]


@pytest.mark.parametrize("status", ["503 Service Unavailable", "500 Internal Server Error", "429 Too Many Requests"])
def test_a_server_that_is_busy_is_waited_for(bucket: BucketPlace, s3: S3Server, status: str, tmp_path: Path) -> None:
    for call in (
        lambda: bucket.write("a", b"12"),
        lambda: bucket.sizes(""),
        lambda: bucket.read(["a"]),
        lambda: bucket.download("a", tmp_path / "a"),
        lambda: bucket.remove(["a"]),
    ):
        s3.trouble = failing(2, status)
        call()
    assert bucket.sizes("") == {}


def test_a_server_that_does_not_answer_is_asked_again(
    bucket: BucketPlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SECONDS_TO_ANSWER", 0.3)
    slow = [True]

    def once(request: dict[str, Any]) -> None:
        if slow.pop() if slow else False:
            time.sleep(1.0)

    s3.trouble = once
    bucket.write("a", b"12")
    assert bucket.read(["a"]) == {"a": b"12"} and not slow


def test_a_download_that_breaks_off_is_begun_again(bucket: BucketPlace, s3: S3Server, tmp_path: Path) -> None:
    bucket.write("a", b"12" * 1000)
    s3.breaks_off = 1
    assert bucket.download("a", tmp_path / "a") and (tmp_path / "a").stat().st_size == 2000


def test_a_server_that_is_gone_is_given_up_in_one_sentence(
    bucket: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnreachable, match=r"s3://lab/team/turnwise.*TW-store-unreachable"):
        bucket.sizes("")


def test_a_bucket_that_does_not_exist_is_refused(s3: S3Server) -> None:
    with pytest.raises(ConfigurationError, match=r"s3://other/turnwise.*TW-store-unusable"):
        BucketPlace("s3://other/turnwise").require_writable()


def test_missing_and_wrong_credentials_are_refused(
    bucket: BucketPlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s3.trouble = failing(1, "403 Forbidden")
    with pytest.raises(ConfigurationError, match="TW-store-unusable"):
        bucket.write("a", b"1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="TW-store-unusable"):
        BucketPlace("s3://lab/x").require_writable()
