"""A real S3 server with an empty bucket, and what its clients read from the environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.s3_server import BUCKET, S3Server, running

SECRET = "AbCdSecretKeyOfNobody1234567890"


@pytest.fixture(scope="session")
def s3_of_session() -> Iterator[S3Server]:
    with running() as server:
        yield server


@pytest.fixture
def s3(s3_of_session: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, with a bucket that is empty and credentials in the environment."""
    yield from s3_of_session.for_one_test(monkeypatch, SECRET)


@pytest.fixture
def url(s3: S3Server) -> str:
    """A prefix of the bucket."""
    return f"s3://{BUCKET}/team/turnwise"
