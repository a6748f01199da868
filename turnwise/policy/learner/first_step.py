"""The first step of an update, looked at: its gradient, and how far it moves the policy on its own batch.

Of the whole batch as one mini-batch, whatever `mini_batches` and `epochs` are. Before the step the ratio to the policy
that sampled is 1, and nothing is clipped; so clip shares and KL are those of a second pass, after the step, over the
same tokens: what a second epoch would meet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from turnwise.policy.learner.distillation import Teacher, TeacherStates
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.metric_sums import UpdateTally
from turnwise.policy.model import trained_parameters

Gradient = Mapping[str, torch.Tensor]
"""A gradient on the CPU, by the names of the parameters that are trained."""


class FirstStepLearner(Learner):
    """A learner that takes one step and keeps its gradient. It is not to be trained further."""

    def first_step(
        self,
        batch: UpdateBatch,
        settings: UpdateSettings,
        sampler: Any = None,
        teacher: Teacher | None = None,
        *,
        taken: bool = True,
    ) -> tuple[Gradient, dict[str, float]]:
        """The gradient of the objective on the whole batch, before clipping, and its metrics.

        `gradient_norm`, `loss` and `entropy` (nats) are those before the step. If the step is `taken`, also those of
        the policy after it, means over reply tokens: `clip_fraction_low`, `clip_fraction_high` and `approximate_kl`
        (nats, from the policy that the ratio is taken to).

        Raises as `Learner.update` does.
        """
        self._taken, self._gradients, self._tallies = taken, list[Gradient](), list[UpdateTally]()
        self.update(batch, settings.changed(epochs=2 if taken else 1, mini_batches=1), sampler, teacher)
        gradient, before = self._gradients[0], self._tallies[0].means()
        after = self._tallies[1].means() if taken else {}
        moved = {name: after[name] for name in ("clip_fraction_low", "clip_fraction_high", "approximate_kl") if after}
        return gradient, {
            "gradient_norm": math.sqrt(dot(gradient, gradient)),
            "loss": before["loss"],
            "entropy": before["entropy"],
            **moved,
        }

    def _gradient(
        self, batch: UpdateBatch, settings: UpdateSettings, teacher_states: TeacherStates | None = None
    ) -> UpdateTally:
        tally = super()._gradient(batch, settings, teacher_states)
        self._tallies.append(tally)
        return tally

    def _step(self, settings: UpdateSettings) -> float:
        first = not self._gradients
        if first:
            self._gradients.append(
                {
                    name: parameter.grad.detach().to("cpu", torch.float32, copy=True)
                    for name, parameter in trained_parameters(self.model).items()
                    if parameter.grad is not None
                }
            )
        if first and self._taken:
            return super()._step(settings)
        self.model.zero_grad()
        return 0.0


def dot(one: Gradient, other: Gradient) -> float:
    """The inner product of two gradients, in double precision. A parameter that one of them lacks counts as 0."""
    return sum(
        float(one[name].double().flatten() @ other[name].double().flatten()) for name in one.keys() & other.keys()
    )


def cosine(one: Gradient, other: Gradient) -> float | None:
    """The cosine of the angle between two gradients; None where one of them is 0."""
    norms = math.sqrt(dot(one, one) * dot(other, other))
    return dot(one, other) / norms if norms else None
