"""Every installed world that is played in another program, such as a browser, passes the suite of `every_world`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance_cases import OF_OTHER_PROGRAMS, Case, marked, opened_case
from every_world import *  # noqa: F403  the tests of the suite

from turnwise.world import installed_worlds


@pytest.fixture(scope="module", params=marked([name for name in installed_worlds() if name in OF_OTHER_PROGRAMS]))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    with opened_case(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found
