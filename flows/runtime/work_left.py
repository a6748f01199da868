"""The estimate of how long the stages of a plan that are left will take.

Stages are counted by kind. Rough seconds are those of a small policy, and `flows.needs.model_seconds` adds what the
arithmetic of a large one takes. A kind that was computed in this command takes what it took so far, on average; one
that was not yet takes its rough seconds, at the pace of those that were; the pace begins as that of two cores, since
the first stages load libraries and say little of what follows. What lies between stages (records, the loading of
libraries) is measured for each process, from its first stage to its last, and taken to go on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from flows import roster
from flows.run_state import ON_TEST_TASKS
from tasks.observing import StageCall

TEST = "evaluate on test tasks"
"""The kind of the evaluations on the test task set, which is larger than that of validation."""
EXPECTED_SECONDS = {
    "task_set": 1.0,
    "demonstrations": 8.0,
    "tokenizer": 4.0,
    "initial_policy": 2.0,
    "converted_policy": 15.0,
    "warm_start": 100.0,
    "baseline": 2.0,
    "initial_critic": 0.5,
    TEST: 4.0,
    "report": 5.0,
    "pretraining": 400.0,
}
"""Rough seconds on two cores of the stages outside iterations; those of an iteration are in `flows.roster`."""

SECONDS_OF_TRUST = 20.0
"""How many seconds of work the rough seconds themselves count for in the pace."""

NOTHING: Mapping[str, float] = MappingProxyType({})
Stages = Mapping[str, int]
"""How many calls of stages there are, by their kind."""
NONE: Stages = MappingProxyType({})


def kind_of(stage: str, label: str) -> str:
    """The kind of a call: its stage, but for evaluations on the test task set."""
    return TEST if stage == "evaluate" and ON_TEST_TASKS in label else stage


def expected_seconds(kind: str) -> float:
    """The rough seconds of a call; they weight the stages in the share of the work that is done."""
    of_iterations = {each.task: each.seconds for each in roster.ROSTER}
    return of_iterations.get(kind, EXPECTED_SECONDS.get(kind, 1.0))


def expected_work(stages: Stages, of_model: Mapping[str, float] = NOTHING) -> float:
    """The sum of the rough seconds of some calls; `of_model` has what the policy's size adds to a call of each kind."""
    return sum(number * (expected_seconds(kind) + of_model.get(kind, 0.0)) for kind, number in stages.items())


class WorkLeft:
    """Counts the calls of stages that have returned, and estimates what is left of those that were expected."""

    def __init__(self, expected: Stages, of_model: Mapping[str, float] = NOTHING, recorded: Stages = NONE) -> None:
        """`recorded` are those of the `expected` calls whose results are there already."""
        self._expected, self._of_model = Counter(expected), of_model
        self._uncomputed = self._expected - Counter(recorded)
        self._returned: Counter[str] = Counter()
        self._computed: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        """By kind, of the calls that were computed."""
        self._busy: dict[str, tuple[float, float]] = {}
        """By process: when its first stage that was computed began, and when its last one ended."""

    def count(self, call: StageCall, process: str, now: float) -> None:
        """A call has returned in a process; `now`: seconds of a clock that only goes forward."""
        kind = kind_of(call.stage, call.label)
        self._returned[kind] += 1
        if not call.cached:
            self._computed[kind] += 1
            self._seconds[kind] += call.seconds
            began, _ = self._busy.get(process, (now - call.seconds, now))
            self._busy[process] = (began, now)

    def expect_less(self, stages: Stages) -> None:
        """Some calls that were expected will not be made."""
        self._expected -= Counter(stages)
        self._uncomputed -= Counter(stages)

    @property
    def share(self) -> float:
        """The share of the expected work that is done, from 0 to 1."""
        done = {kind: min(self._returned[kind], number) for kind, number in self._expected.items()}
        return self._work(done) / self._work(self._expected)

    def seconds(self, at_once: int) -> float | None:
        """Estimated seconds until all is done, by so many processes at once; None before anything was computed."""
        computing = sum(self._seconds.values())
        if not computing:
            return None
        pace = (computing + SECONDS_OF_TRUST) / (self._work(self._computed) + SECONDS_OF_TRUST)
        between = sum(ended - began for began, ended in self._busy.values()) / computing
        left = sum(
            max(0, min(number - self._returned[kind], self._uncomputed[kind] - self._computed[kind]))
            * self._seconds_of(kind, pace)
            for kind, number in self._expected.items()
        )
        return left * max(1.0, between) / at_once

    def _seconds_of(self, kind: str, pace: float) -> float:
        if self._computed[kind]:
            return self._seconds[kind] / self._computed[kind]
        return pace * self._work({kind: 1})

    def _work(self, stages: Stages) -> float:
        return expected_work(stages, self._of_model)
