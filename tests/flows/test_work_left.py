"""The estimate of the time left, held against the stages of the default experiment as two processes have timed them.

Where many processes share few runs, the last runs leave some of them idle, which the estimate does not foresee.

`seconds_of_the_default_experiment.json` has, by run in the order in which runs are begun, the seconds of its rollouts,
updates and evaluations (before training, twice in it, on the test tasks). No clock is read here.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from flows.plan import plan_ablation, plan_runs
from turnwise.experiment import load
from turnwise.store import Reference
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.work_left import TEST, WorkLeft, expected_work, kind_of

SECONDS = Path(__file__).parent / "seconds_of_the_default_experiment.json"
PARAMETERS = Path(__file__).parents[1] / "parameters.yaml"
BEFORE_RUNS = {
    "task_set": (6.64, 0.01, 0.03),
    "demonstrations": (0.16,),
    "tokenizer": (0.04,),
    "initial_policy": (0.02,),
    "baseline": (0.08, 0.13, 0.17),
    TEST: (14.6,),
}
REPORT_SECONDS = 5.9
BETWEEN_STAGES = 0.08
"""Seconds of a process between two stages, for records."""
START = 15.0
"""Seconds until a worker begins its first run."""


@dataclass(frozen=True, order=True)
class Returned:
    """A stage that has returned, at a second after the beginning."""

    at: float
    process: str
    kind: str
    seconds: float

    @property
    def call(self) -> StageCall:
        stage, label = ("evaluate", "on the test task set") if self.kind == TEST else (self.kind, "")
        return StageCall(stage, label, Reference(kind="none", digest="0" * 32), False, self.seconds, "task/digest")


def stages_of_a_run(timed: dict[str, list[float]]) -> Iterator[tuple[str, float]]:
    before, *within, test = timed["evaluate"]
    yield "evaluate", before
    for number, (rollout, update) in enumerate(zip(timed["rollout"], timed["update"], strict=True), start=1):
        yield from (("rollout", rollout), ("credit", 0.02), ("update", update), ("health", 0.02))
        if number % 5 == 0:
            yield "evaluate", within[number // 5 - 1]
    yield TEST, test


def ablation(processes: int) -> list[Returned]:
    """When each stage returned: the first process prepares, and all share the runs."""
    returned: list[Returned] = []

    def went_by(at: float, process: int, kind: str, seconds: float) -> float:
        returned.append(Returned(at + seconds + BETWEEN_STAGES, f"process {process}", kind, seconds))
        return returned[-1].at

    at = 0.0
    for kind, each in BEFORE_RUNS.items():
        for seconds in each:
            at = went_by(at, 1, kind, seconds)
    free = [(at, 1), *((START, process) for process in range(2, processes + 1))]
    heapq.heapify(free)
    for timed in json.loads(SECONDS.read_text()).values():
        at, process = heapq.heappop(free)
        for kind, seconds in stages_of_a_run(timed):
            at = went_by(at, process, kind, seconds)
        heapq.heappush(free, (at, process))
    went_by(max(free)[0], 1, "report", REPORT_SECONDS)
    return sorted(returned)


@pytest.mark.parametrize("processes", [1, 2])
def test_in_the_first_minute_the_estimate_has_the_right_order_of_magnitude(processes: int) -> None:
    passed = ablation(processes)
    left = WorkLeft(Counter(each.kind for each in passed))
    for each in passed:
        left.count(each.call, each.process, each.at)
        estimate = left.seconds(processes)
        assert estimate is not None
        # The first task set alone takes seven times its rough seconds, since libraries are loaded meanwhile.
        assert 0.4 < estimate / (passed[-1].at - each.at) < 2.5, f"{each.at:.0f} s"
        if each.at > 60:
            break


@pytest.mark.parametrize("processes", [1, 2])
def test_from_the_first_minute_to_the_last_the_estimate_is_right_within_a_third(processes: int) -> None:
    passed = ablation(processes)
    left = WorkLeft(Counter(each.kind for each in passed))
    end, looks = passed[-1].at, 0
    for each, following in pairwise(passed):
        left.count(each.call, each.process, each.at)
        if 60 <= following.at <= end - 60:
            estimate = left.seconds(processes)
            assert estimate is not None
            assert estimate == pytest.approx(end - each.at, rel=1 / 3), f"{each.at:.0f} of {end:.0f} s"
            looks += 1
    left.count(passed[-1].call, "process 1", end)
    assert looks > 200 and left.share == 1.0 and left.seconds(processes) == 0.0


def test_before_anything_was_computed_there_is_no_estimate_and_what_is_found_counts_as_done() -> None:
    left = WorkLeft({"rollout": 2, "update": 2})
    found = StageCall("rollout", "", Reference(kind="none", digest="0" * 32), True, 0.01, "task/digest")
    left.count(found, "process 1", 1.0)
    assert left.seconds(1) is None and left.share == pytest.approx(1.0 / (2 * 1.0 + 2 * 1.2))
    left.count(found, "process 1", 2.0)
    left.count(StageCall("update", "", found.reference, False, 6.0, "task/digest"), "process 1", 9.0)
    assert left.seconds(1) == 6.0 and left.seconds(2) == 3.0
    left.count(StageCall("update", "", found.reference, False, 6.0, "task/digest"), "process 1", 18.0)
    left.count(StageCall("update", "", found.reference, False, 6.0, "task/digest"), "process 1", 24.0)
    assert left.seconds(1) == 0.0 and left.share == 1.0, "more calls than were expected leave nothing"


def test_what_a_process_does_between_stages_is_taken_to_go_on() -> None:
    left = WorkLeft({"rollout": 3})
    reference = Reference(kind="none", digest="0" * 32)
    left.count(StageCall("rollout", "", reference, False, 4.0, "task/digest"), "process 1", 4.0)
    left.count(StageCall("rollout", "", reference, False, 4.0, "task/digest"), "process 1", 12.0)
    assert left.seconds(1) == pytest.approx(4.0 * 12 / 8)


def test_a_warm_start_is_expected_where_there_is_one_and_a_sweep_has_no_test() -> None:
    few = ["ablation.seeds=[1]", "optimization.iterations=2"]
    without, with_one = (load(PARAMETERS, settings=[*few, f"warm_start.enabled={on}"]) for on in ("false", "true"))
    every = plan_ablation(without).kinds
    assert plan_ablation(with_one).kinds - every == {"warm_start": 1}
    swept = plan_runs(without, tested=False).kinds
    assert swept[TEST] == swept["baseline"] == swept["report"] == 0 < swept["evaluate"]
    assert expected_work(swept) < expected_work(every)
    assert kind_of("evaluate", "mt-grpo seed 1 on the test task set, 4 turns") == TEST
    assert kind_of("evaluate", "mt-grpo seed 1 iteration 5") == "evaluate"


def test_what_is_recorded_takes_no_time_before_it_is_found() -> None:
    left = WorkLeft({"rollout": 3}, recorded={"rollout": 2})
    reference = Reference(kind="none", digest="0" * 32)
    left.count(StageCall("rollout", "", reference, True, 0.01, "task/digest"), "process 1", 0.1)
    left.count(StageCall("update", "", reference, False, 1.2, "task/digest"), "process 1", 1.3)
    one = left.seconds(1)
    left.count(StageCall("rollout", "", reference, True, 0.01, "task/digest"), "process 1", 1.4)
    assert one == left.seconds(1) == pytest.approx(1.0)


def test_what_an_ended_run_does_not_call_is_no_work_that_is_left() -> None:
    left = WorkLeft({"rollout": 4, "update": 4})
    reference = Reference(kind="none", digest="0" * 32)
    for kind in ("rollout", "update"):
        left.count(StageCall(kind, "", reference, False, 1.0, "task/digest"), "this process", 2.0)
    assert left.share < 1.0 and left.seconds(1)
    left.expect_less({"rollout": 3, "update": 3})
    assert (left.share, left.seconds(1)) == (1.0, 0.0)
