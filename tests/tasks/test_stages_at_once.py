"""What several ask for at the same time is computed once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from number_samples import Parameters, write_number

from tasks.caching import cache_key, depends_on
from tasks.orchestration.deferred import task
from turnwise.store import Reference

pytestmark = pytest.mark.usefixtures("turnwise_home")

made: list[int] = []


@task(name="shared", task_run_name="{label}: shared", retries=1)
@depends_on()
def shared(parameters: Parameters, *, label: str = "shared") -> Reference:
    """Takes long enough for others to ask for the same."""
    made.append(threading.get_ident())
    time.sleep(0.2)
    return write_number(parameters.factor)


@pytest.mark.usefixtures("prefect_server")
def test_what_twenty_ask_for_at_once_is_computed_once() -> None:
    made.clear()
    cache_key(shared, Parameters())  # reads the sources, which threads of one process would do at once
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: shared(Parameters()), range(20)))
    assert len(made) == 1
    assert len(set(found)) == 1
