"""What a Ray worker reports arrives in order, or the run fails: no report is lost in silence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flows.workers.ray_cluster import _Sender


class Queue:
    """Takes reports as Ray's queue does; one of them is lost on the way."""

    def __init__(self, lost: str = "") -> None:
        self.lost, self.arrived = lost, list[tuple[str, str]]()

    def put(self, report: tuple[str, str]) -> None:
        if report[1] == self.lost:
            raise ConnectionError(f"{self.lost} was lost")
        self.arrived.append(report)


def sent(queue: Queue, *lines: str, then: Callable[[_Sender], None] = lambda sender: None) -> None:
    with _Sender(queue, "grpo seed 1") as sender:
        for line in lines:
            sender.send(line)
        then(sender)


def test_reports_arrive_in_order() -> None:
    queue = Queue()
    sent(queue, "began", "iteration 1", "ended")
    assert queue.arrived == [("grpo seed 1", line) for line in ("began", "iteration 1", "ended")]


@pytest.mark.parametrize("lost", ["began", "iteration 1", "ended"])
def test_a_report_that_is_lost_fails_the_run_whatever_arrives_after_it(lost: str) -> None:
    with pytest.raises(ConnectionError, match=f"{lost} was lost"):
        sent(Queue(lost), "began", "iteration 1", "ended")


def test_where_the_run_fails_too_its_failure_is_told_as_the_context() -> None:
    def fail(sender: _Sender) -> None:
        raise ValueError("the run has failed")

    with pytest.raises(ConnectionError) as raised:
        sent(Queue("began"), "began", then=fail)
    assert isinstance(raised.value.__context__, ValueError)
