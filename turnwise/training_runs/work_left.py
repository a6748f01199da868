"""The estimate of how long the stages of a plan that are left will take.

Stages are counted by kind. Rough seconds are those of a small policy, and `model_seconds` adds what the arithmetic of
a large one takes. A kind that was computed in this command takes what it took so far, on average; one that was not yet
takes its rough seconds, at the pace of those that were; the pace begins as that of two cores, since the first stages
load libraries and say little of what follows. What lies between stages (records, the loading of libraries) is measured
for each process, from its first stage to its last, and taken to go on.

The rough seconds are those of a policy of up to three million parameters, which waits for all but its arithmetic. A
larger one takes besides, with P parameters above these,

    2 P operations     for each token that is read or sampled
    6 P operations     for each token that is trained on

divided by what a device computes in a second. Tokens are estimated from the bounds of the section `agent`: an episode
fills a quarter of its context, and half of that is a prefix that its group shares; a reply is a quarter of the longest.
Measured on the run of docs/language-model.md (SmolLM2, 64 episodes of at most four replies of 48 tokens, one thread a
side) an iteration took 41 s to sample and 83 s to update; estimated are 52 and 110. What is measured then takes the
place of the estimate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from turnwise.experiment import Experiment
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count, trained
from turnwise.training_runs import iteration_stages
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.state import ON_TEST_TASKS

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
"""Rough seconds on two cores of the stages outside iterations; `IterationStage` has those of the others."""

SECONDS_OF_TRUST = 20.0
"""How many seconds of work the rough seconds themselves count for in the pace."""

NOTHING: Mapping[str, float] = MappingProxyType({})
Stages = Mapping[str, int]
"""How many calls of stages there are, by their kind."""
NONE: Stages = MappingProxyType({})


def kind_of(stage: str, label: str) -> str:
    """The kind of a call: its stage, but for evaluations on the test task set."""
    return TEST if stage == "evaluate" and ON_TEST_TASKS in label else stage


def expected_work(stages: Stages, policy_seconds: Mapping[str, float] = NOTHING) -> float:
    """The sum of the rough seconds of some calls, which weight the stages in the share of the work that is done.

    `policy_seconds` has what the policy's size adds to a call of each kind.
    """
    rough = {**EXPECTED_SECONDS, **{each.task: each.seconds for each in iteration_stages.STAGES}}
    return sum(number * (rough.get(kind, 1.0) + policy_seconds.get(kind, 0.0)) for kind, number in stages.items())


class WorkLeft:
    """Counts the calls of stages that have returned, and estimates what is left of those that were expected."""

    def __init__(
        self, expected: Stages, policy_seconds: Mapping[str, float] = NOTHING, recorded: Stages = NONE
    ) -> None:
        """`recorded` are those of the `expected` calls whose results are there already."""
        self._expected, self._policy_seconds = Counter(expected), policy_seconds
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
        return expected_work(stages, self._policy_seconds)


SMALL_POLICY = 3_500_000
"""Parameters whose arithmetic the rough seconds hold already."""
OPERATIONS_PER_SECOND = {
    ("cpu", "float32"): 60e9,
    ("cpu", "bfloat16"): 120e9,
    ("cuda", "float32"): 100e12,
    ("cuda", "bfloat16"): 100e12,
}
"""Of a thread of a processor that has instructions for the precision, of those that a pass reaches; and of a card, of
which bfloat16 alone was measured."""
FILLED_SHARE, UNSHARED_SHARE, REPLY_SHARE = 0.25, 0.5, 0.27
"""Of a context that an episode fills, of that what its group does not share, and of the longest reply that one is."""


def model_seconds(experiment: Experiment) -> dict[str, float]:
    """The seconds that a large policy adds to a call of each kind of stage; empty for a small or an unknown one."""
    dimensions = dimensions_of(experiment.policy)
    if dimensions is None or count(dimensions.shapes) <= SMALL_POLICY:
        return {}
    agent, rollout, compute = experiment.agent, experiment.rollout, experiment.compute
    every = count(dimensions.shapes)
    read_tokens = FILLED_SHARE * UNSHARED_SHARE * agent.context_tokens
    sampled = REPLY_SHARE * agent.maximum_reply_tokens * experiment.made_world.limits.turns
    each = OPERATIONS_PER_SECOND[compute.device, compute.precision]
    threads = (1, 1) if compute.device == "cuda" else (compute.engine_threads, compute.learner_threads)
    playing = 2 * every * (read_tokens + sampled) / (each * threads[0])
    # Of frozen weights no gradient is computed, but it goes through them.
    backward = 2 * every + 2 * trained(dimensions.shapes, experiment.optimization.adapter)
    training, scoring = ((2 * every + back) * read_tokens / (each * threads[1]) for back in (backward, 0))
    episodes, plays = rollout.prompts * rollout.group_size, 1 + experiment.evaluation.samples
    warm = experiment.warm_start
    return {
        "rollout": episodes * playing,
        "update": episodes * training * experiment.optimization.epochs,
        "reference": episodes * scoring,
        "rescore": episodes * scoring,
        "values": episodes * scoring,
        "fine_tune": experiment.evolution.steps * experiment.evolution.batch * training,
        "learn_values": episodes * training * experiment.critic.epochs,
        "probe": episodes * scoring,
        "evaluate": experiment.data.validation_tasks * plays * playing,
        "evaluate on test tasks": experiment.data.test_tasks * plays * playing,
        "warm_start": warm.maximum_steps * warm.batch * 6 * every * read_tokens / (each * threads[1]),
    }
