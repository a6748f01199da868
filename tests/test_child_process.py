"""A process that computes for another one: what it answers, reports and raises, and that it never outlives that one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from turnwise.child_process import ChildLost, ChildProcess, ParentProcess, ProcessGroup
from turnwise.errors import TrainingEnded

MODULE = "tests.test_child_process"


class Unportable(Exception):
    """It cannot be made again from what it has as arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def main(parent: ParentProcess, name: str = "") -> None:
    """Of a child: do what each request says."""

    def answer(request: tuple[Any, ...]) -> Any:
        match request:
            case "name":
                return name
            case "report", numbers:
                threads = [threading.Thread(target=parent.report, args=(number,)) for number in numbers]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                return len(numbers)
            case "raise", error:
                raise error
            case "raise unportable":
                raise Unportable("one", "two")
            case "sleep", seconds:
                time.sleep(seconds)
            case "exit", words:
                sys.stdout.write(words)
                sys.stdout.flush()
                os._exit(3)
        return os.getcwd(), os.environ.get("GIVEN"), sys.path

    parent.answer(answer)
    sys.stdout.write("orderly")


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    child = ChildProcess(MODULE, "the child")
    yield child
    child.kill()
    child.free()


def test_a_child_answers_with_the_folder_and_the_search_path_of_its_parent() -> None:
    child = ChildProcess(MODULE, "it", environment={**os.environ, "GIVEN": "this"})
    assert child.ask("name") == "it"
    folder, given, path = child.ask("where")
    assert (folder, given) == (os.getcwd(), "this") and {*sys.path} - {""} <= {*path}
    child.finish()
    assert not child.alive


def test_reports_of_several_threads_arrive_whole_and_before_the_answer(child: ChildProcess) -> None:
    reports: list[str] = []
    expected = [str(number) * 200_000 for number in range(8)]
    assert child.ask(("report", expected), reports.append) == 8
    assert sorted(reports) == expected


def test_what_it_raises_is_raised_here_as_it_is_and_it_goes_on(child: ChildProcess) -> None:
    with pytest.raises(TrainingEnded, match="TW-not-finite") as refused:
        child.ask(("raise", TrainingEnded("it has ended", "TW-not-finite", "not_finite")))
    assert refused.value.fault == "not_finite" and not hasattr(refused.value, "__notes__")
    with pytest.raises(KeyError, match="a bug") as raised:
        child.ask(("raise", KeyError("a bug")))
    assert 'case "raise", error' not in raised.value.__notes__[0] and "raise error" in raised.value.__notes__[0]
    with pytest.raises(RuntimeError, match=r'raise Unportable\("one", "two"\)'):
        child.ask("raise unportable")
    assert child.ask("name") == "the child"


def test_one_that_is_lost_says_how_and_what_it_has_printed(child: ChildProcess) -> None:
    with pytest.raises(ChildLost, match="ended with status 3") as lost:
        child.ask(("exit", "its last words"))
    assert (lost.value.status, lost.value.last_words) == (3, "its last words")
    with pytest.raises(ChildLost):
        child.ask("name")


def test_one_that_is_killed_while_it_computes_says_so(child: ChildProcess) -> None:
    timer = threading.Timer(0.5, child.kill)
    timer.start()
    with pytest.raises(ChildLost, match="was ended by SIGKILL") as lost:
        child.ask(("sleep", 600))
    timer.join()
    assert lost.value.status == -signal.SIGKILL


STATES = {
    "as it starts": "",
    "idle": "child.ask('name')",
    "at work": "child.ask('name'); child.send(('sleep', 600))",
    "with an answer that nobody reads": "child.ask('name'); child.send(('report', ['x' * 1_000_000])); time.sleep(1)",
}


@pytest.mark.parametrize(
    ("state", "end"), [*((state, signal.SIGKILL) for state in STATES), ("at work", signal.SIGTERM)], ids=str
)
def test_none_outlives_the_process_that_started_it(state: str, end: signal.Signals) -> None:
    program = (
        "import time\nfrom turnwise.child_process import ChildProcess\n"
        f"child = ChildProcess({MODULE!r})\n{STATES[state]}\nprint(child.process_id, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(end)
    gone, alive = psutil.wait_procs([child])
    assert gone == [child] and not alive


def a_group() -> tuple[ProcessGroup, list[psutil.Process]]:
    group = ProcessGroup("test", "this is tested", [ChildProcess(MODULE, str(number)) for number in range(2)])
    return group, [psutil.Process(each) for each in group.process_ids]


def test_a_group_answers_by_number_and_ends_where_a_call_is_interrupted() -> None:
    group, processes = a_group()
    assert group.ask({1: "name", 0: "name"}) == ({0: "0", 1: "1"}, {})
    answers, failures = group.ask({0: "name", 1: ("raise", KeyError("a bug"))})
    assert answers == {0: "0"} and isinstance(failures[1], KeyError) and group.loss(failures) is None
    assert group.alive
    with pytest.raises(TypeError, match="pickle"):
        group.ask({0: "name", 1: threading.Lock()})
    assert not group.alive and not any(each.is_running() for each in processes)


def test_a_group_says_which_was_lost_and_ends_when_nobody_holds_it() -> None:
    group, processes = a_group()
    answers, failures = group.ask({0: ("exit", "words"), 1: "name"})
    assert answers == {1: "1"} and not group.alive
    sentence = group.loss(failures)
    assert sentence is not None and sentence.endswith("It said: words")
    assert sentence.startswith("all 2 test processes must live as long as this is tested; process 0 ended with status")
    del group
    assert not any(each.is_running() for each in processes)
