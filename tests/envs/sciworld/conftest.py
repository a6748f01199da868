"""No simulator outlives the file of tests that has started it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sciworld_samples import end_java


@pytest.fixture(scope="module", autouse=True)
def _java_ends() -> Iterator[None]:
    yield
    end_java()
