"""What several tests share: a home of their own, and one real Prefect server for the session."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import math
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flows.runtime import server
from tests.end_to_end.project_copy import GUARD
from tests.left_behind import Running
from tests.programs import missing
from turnwise.own_process import collect_rarely
from turnwise.policy.device_memory import CONTROL_GROUPS, _control_group, device_bytes

# Their assertions are explained as those of test files are.
pytest.register_assert_rewrite("every_rule", "every_world")

collect_rarely()
if "PYTEST_XDIST_WORKER" in os.environ:  # what is registered later is done earlier; the main process has the status
    atexit.register(os._exit, 0)

# A busy machine draws examples slowly, and fails nothing by it. Every run of the tests draws others.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40
)
settings.load_profile("without a clock")

# Test processes take all cores there are: threads of one's libraries would only wait for those of another's.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Prefect reads its settings when a test module imports it, long before the first fixture.
for name, value in server.CLIENT_SETTINGS.items():
    os.environ.setdefault(name, value)


MOST_PROCESSES = 8
"""More wait for the longest files."""
BYTES_OF_A_PROCESS = 3 * 2**30
"""With vLLM in it, and the commands that it starts."""


def pytest_xdist_auto_num_workers() -> int:
    """One test process more than there are processors: so none is idle while one waits for a server or a browser."""
    memory = device_bytes("cpu")
    assert memory is not None
    return max(1, min(_processors() + 1, MOST_PROCESSES, memory // BYTES_OF_A_PROCESS))


def _processors() -> int:
    """How many this process may use: its control group, or one above it, may be held to fewer than it sees."""
    found = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    group = CONTROL_GROUPS / _control_group()
    for place in (group, *group.parents):
        quota, period = path.read_text().split() if (path := place / "cpu.max").is_file() else ("max", "1")
        if quota != "max":
            found.append(math.ceil(int(quota) / int(period)))
    return min(found)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-episodes",
        type=int,
        help="episodes of the random baseline in every world of tests/conformance, instead of fewer in the heavy ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Files, and the tests of a file, come in random order. Nothing else is random by it: no generator is seeded."""
    if config.pluginmanager.hasplugin("randomly"):
        config.option.randomly_reset_seed = False


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which order this was, at the end, where it is seen beside what failed."""
    if config.pluginmanager.hasplugin("randomly") and config.getoption("randomly_reorganize"):
        terminalreporter.write_line(f"The order was --randomly-seed={config.getoption('randomly_seed')}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a program that is missing here, `@pytest.mark.needs("java")`, and begin with the longest files.

    In what order either kind of files comes is random (pytest-randomly); one of the longest that came last would be
    waited for. The cases of a test that is `in_order` stay as they are written, in the places that they were given.
    """
    items.sort(key=lambda item: item.path.parent.name != "end_to_end")
    together: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("in_order"):
            together.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in together.values():
        written = iter(sorted(cases, key=lambda case: [*case.callspec.indices.values()]))
        places = [place for place, item in enumerate(items) if item in cases]
        for place in places:
            items[place] = next(written)
    for item in items:
        needed = [name for mark in item.iter_markers("needs") for name in mark.args]
        if reason := missing(*needed):
            item.add_marker(pytest.mark.skip(reason))


def pytest_collection_finish() -> None:
    """What was imported stays: no later search for garbage goes over it."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Prefect asks the server that the environment names now, not the one that an earlier test had put there."""
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context
        from prefect.settings import get_current_settings

        if get_current_settings().api.url != os.environ.get("PREFECT_API_URL"):
            refresh_global_settings_context()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Pytest looks for garbage five times when it ends: two seconds."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report goes from worker to master as UTF-8, and what a test logged may hold halves of characters."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file of tests stops the threads and the processes that it has started."""
    before = Running.now()
    yield
    left = before.left_by()
    assert not left, f"{request.node.nodeid} leaves behind {', '.join(left)}; tests/left_behind.py names what may stay"


@pytest.fixture
def turnwise_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is empty and the test's own: TURNWISE_HOME points to it."""
    folder = tmp_path / "turnwise_home"
    monkeypatch.setenv("TURNWISE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prefect server in a temporary home: one for all test processes, stopped by the last.

    It is refused to talk to others than this machine, and at the end it must not have wanted to.
    """
    names = ["PREFECT_API_URL", "PREFECT_HOME", "TURNWISE_HOME", "NO_PROXY", "no_proxy", "PYTHONPATH", "NETWORK_LOG"]
    before = {name: os.environ.get(name) for name in names}
    of_process = tmp_path_factory.getbasetemp()
    home = (of_process.parent if "PYTEST_XDIST_WORKER" in os.environ else of_process) / "prefect_server"
    home.mkdir(exist_ok=True)
    os.environ["TURNWISE_HOME"] = str(home)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ.pop("PREFECT_HOME", None)
    asked_outside = home / "network.log"
    os.environ["NETWORK_LOG"] = str(asked_outside)
    os.environ["PYTHONPATH"] = os.pathsep.join(str(place) for place in (GUARD, before["PYTHONPATH"]) if place)
    with (home / "in_use").open("w") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_SH)
        address = server.ensure_server()
        server._own_addresses.discard(address)  # as one that the user chose: homes of single tests use it, too
        for name in ("NETWORK_LOG", "PYTHONPATH"):  # for the server alone
            _put_back(name, before[name])
        from prefect.context import SyncClientContext

        with SyncClientContext.get_or_create():  # outside a flow each task would make a client: a tenth of a second
            yield address
        with contextlib.suppress(BlockingIOError):  # another process still needs it
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            server.stop_server()
            assert not asked_outside.exists(), asked_outside.read_text()
    for name, value in before.items():
        _put_back(name, value)


def _put_back(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
