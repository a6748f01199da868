"""Guards: conditions under which more training is wasted or harmful. Each ends the run with a message that says why.

The first three are outcomes of the method: the policy that the run ended with is tested and counts. The last two are
faults: the run is left out (`turnwise.data.outcomes`).

    no_signal             n iterations in a row in which no advantage differed from 0
    zero_variance_groups  n in a row in which every group was zero-variance (equal rewards)
    truncated_replies     n in a row in which every reply was cut off
    mismatch              the learner's log-probabilities are not the engine's (raised by the learner, before any step)
    not_finite            a loss, a gradient or a weight that is not finite (raised by the learner)

Where every episode is solved, neither of the first two is a failure.

A message says what was seen, what it usually means, what to change, and which policy is the last good one. That policy
is an artifact and never changes: another run can start from it, with its folder in the store as `policy.model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnwise.config.monitoring import Guards
from turnwise.health.monitors import Values


@dataclass(frozen=True)
class GuardAdvice:
    """The two fixed parts of a guard's message: what the condition usually means, and what to change."""

    meaning: str
    change: str


GUARDS: Mapping[str, GuardAdvice] = {
    "no_signal": GuardAdvice(
        "rewards differ too little within groups for this estimator, or the selection leaves nothing over",
        "more trajectories per group (rollout.group_size), a reward with degrees, or selection.rule: all",
    ),
    "zero_variance_groups": GuardAdvice(
        "the tasks are too hard for this policy, or it has collapsed to one reply",
        "a stronger warm start, easier tasks, a higher rollout.temperature, or a lower optimization.learning_rate",
    ),
    "truncated_replies": GuardAdvice(
        "the policy has forgotten how to end a reply, or the limit is shorter than any reply",
        "a larger agent.maximum_reply_tokens, a stronger warm start, or a lower optimization.learning_rate",
    ),
    "mismatch": GuardAdvice(
        "the engine sampled with other weights, at another temperature, or in a lower precision",
        "compute.precision, or, for an engine of low precision, a larger optimization.maximum_mismatch",
    ),
    "not_finite": GuardAdvice(
        "a step was too long, and the weights have left the range in which the model computes",
        "a lower optimization.learning_rate, a lower optimization.maximum_gradient_norm, or compute.precision: float32",
    ),
}
"""The guards' advice by name, in the order in which they are checked."""


def no_signal(values: Values) -> bool:
    """Whether no advantage of the iteration differed from 0, although some episode was not solved."""
    return values.get("no_signal", 0.0) == 1.0 and values.get("success", 0.0) < 1.0


def zero_variance_groups(values: Values) -> bool:
    """Whether every group was zero-variance, although some episode was not solved."""
    return values.get("zero_variance_groups", 0.0) == 1.0 and values.get("success", 0.0) < 1.0


def truncated_replies(values: Values) -> bool:
    """Whether every reply was cut off at its maximum length."""
    return values.get("truncated_replies", 0.0) == 1.0


COUNTED = {"no_signal": no_signal, "zero_variance_groups": zero_variance_groups, "truncated_replies": truncated_replies}
"""The guards that count iterations, with their conditions; the learner raises the others itself."""


def in_a_row(before: Mapping[str, int], values: Values) -> dict[str, int]:
    """By guard, the number of consecutive iterations in which its condition has held, up to one with these values.

    `before` has the numbers up to the iteration before; it is empty before the first.
    """
    return {name: before.get(name, 0) + 1 if holds(values) else 0 for name, holds in COUNTED.items()}


def message(name: str, seen: str, policy: str) -> str:
    """The message with which a guard ends a run: what was seen, what it means, what to change, the last good policy."""
    advice = GUARDS[name]
    return (
        f"training must be able to go on; it was ended by the guard {name}: {seen}. This usually means that "
        f"{advice.meaning}. What may help: {advice.change}. The last good policy is {policy}"
    )


def reached_guard(in_a_row: Mapping[str, int], guards: Guards) -> str | None:
    """The name of the guard that ends a run; of several the first in the guards' order, None where none does.

    `in_a_row` has, by guard, the number of consecutive iterations in which its condition has held: see
    `turnwise.health.guards.in_a_row`.
    """
    for name in COUNTED:
        most = getattr(guards, name)
        if most is not None and in_a_row[name] >= most:
            return name
    return None
