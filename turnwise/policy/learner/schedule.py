"""The learning rate, step by step. With lr the configured one, w the steps of the warm-up and n the steps of the run:

    step k < w    lr k / w
    constant      lr
    linear        lr (s + (1 - s) (1 - k / n))                 s: the share of lr that is left at the last step
    cosine        lr (s + (1 - s) (1 + cos(pi k / n)) / 2)     Loshchilov and Hutter 2017 (arXiv 1608.03983)

Steps are counted from 1. Differs from Hugging Face's and verl's schedules, which count from 0, so that their first step
of a warm-up changes nothing: k here is their k + 1. The fall is measured from step 0, so that it does not depend on the
warm-up; theirs is measured from its end.
"""

from __future__ import annotations

import math

from turnwise.config.schema import SupervisedSteps
from turnwise.policy.learner.settings import UpdateSettings


def warmed_up_and_falling(step: int, steps: int, highest: float, section: SupervisedSteps) -> float:
    """The learning rate of a supervised step, 1 to `steps`: warm-up to `highest`, then linearly to the final one."""
    if step < section.learning_rate_warmup:
        return highest * step / section.learning_rate_warmup
    return section.final_learning_rate + (highest - section.final_learning_rate) * (1.0 - step / steps)


def update_learning_rate(step: int, settings: UpdateSettings) -> float:
    """The learning rate of an update's optimizer step, counted from 1 through the whole run.

    A step beyond `settings.run_steps` has the final learning rate.
    """
    if step < settings.learning_rate_warmup:
        return settings.learning_rate * step / settings.learning_rate_warmup
    if settings.run_steps is None:
        return settings.learning_rate
    passed = min(step / settings.run_steps, 1.0)
    fall = 1.0 - passed if settings.learning_rate_schedule == "linear" else (1.0 + math.cos(math.pi * passed)) / 2.0
    final_share = settings.final_learning_rate_share or 0.0
    return settings.learning_rate * (final_share + (1.0 - final_share) * fall)
