"""Supervised training until a policy can play: the SFT warm start.

It stops as soon as success on the validation tasks reaches a threshold. A fixed number of steps would be a lottery,
since copying an answer out of a search result is learned quite suddenly.

`imitation_batch` draws what AgentEvol imitates: the selected trajectories of a rollout, and demonstrations. See
`turnwise.credit.rejection_sampling`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from turnwise import progress, seeding
from turnwise.config.optimization import Evolution
from turnwise.config.schema import WarmStart
from turnwise.data.arrays import Advantages, SequenceBatch, joined
from turnwise.policy.learner.schedule import warmed_up_and_falling

if TYPE_CHECKING:
    from turnwise.policy.learner.learner import Learner


def train_until_success(
    learner: Learner, sequences: SequenceBatch, section: WarmStart, success_after: Callable[[int], float]
) -> list[dict[str, float]]:
    """Take supervised steps until a check reaches `section.threshold`, or `section.maximum_steps` are taken.

    `success_after(step)` is the success, 0 to 1, of the policy as it is after this step. Returns the curve, one point
    per check: `step`, `loss` (mean since the check before, nats per reply token) and `validation`, the success.
    """
    curve: list[dict[str, float]] = []
    losses: list[float] = []
    for step in range(1, section.maximum_steps + 1):
        # A function of the step and of no stream, so that checks and their length change no batch.
        draws = seeding.generator(section.seed, "demonstrations", step).integers(len(sequences), size=section.batch)
        metrics = learner.supervised_step(
            sequences.select(draws),
            learning_rate=warmed_up_and_falling(step, section.maximum_steps, section.learning_rate, section),
            micro_batch_tokens=section.micro_batch_tokens,
            weight_decay=section.weight_decay,
            optimizer=section.optimizer,
        )
        losses.append(metrics["loss"])
        if step % section.check_every == 0 or step == section.maximum_steps:
            reached = success_after(step)
            curve.append({"step": step, "loss": sum(losses) / len(losses), "validation": reached})
            losses.clear()
            if reached >= section.threshold:
                break
        validation = curve[-1]["validation"] if curve else 0.0
        progress.report("warm start", step, section.maximum_steps, loss=metrics["loss"], success=validation)
    return curve


def selected_trajectories(credited: Advantages) -> Sequence[int]:
    """The indices in the rollout of the trajectories with any advantage other than 0."""
    rows = zip(credited.trajectories.tolist(), credited.turns, strict=True)
    return [index for index, advantages in rows if advantages.any()]


def imitate(
    learner: Learner,
    own: SequenceBatch,
    demonstrations: SequenceBatch | None,
    evolution: Evolution,
    *,
    seed: int,
    iteration: int,
    **optimization: Any,
) -> dict[str, float]:
    """Take `evolution.steps` supervised steps, each on an `imitation_batch` of its own.

    `optimization` is what `supervised_step` takes. Returns the means of its `loss` and `gradient_norm`, its `tokens`
    added up, and `optimizer_steps`.
    """
    steps = []
    for step in range(1, evolution.steps + 1):
        generator = seeding.generator(seed, "imitation", iteration, step)
        steps.append(
            learner.supervised_step(imitation_batch(own, demonstrations, evolution, generator), **optimization)
        )
    means = {name: sum(each[name] for each in steps) / len(steps) for name in ("loss", "gradient_norm")}
    return {**means, "tokens": sum(each["tokens"] for each in steps), "optimizer_steps": float(len(steps))}


def imitation_batch(
    own: SequenceBatch, demonstrations: SequenceBatch | None, evolution: Evolution, generator: Generator
) -> SequenceBatch:
    """Draw the sequences of a supervised step with replacement: the demonstrations' share, rounded, else own ones."""
    count = round(evolution.batch * evolution.demonstration_share)
    parts = ((own, evolution.batch - count), (demonstrations, count))
    return joined(
        part.select(generator.integers(len(part), size=size)) for part, size in parts if part is not None and size
    )
