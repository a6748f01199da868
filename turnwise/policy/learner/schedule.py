"""The learning rate of supervised steps."""

from __future__ import annotations

from turnwise.config.schema import SupervisedSteps


def warmed_up_and_falling(step: int, steps: int, highest: float, section: SupervisedSteps) -> float:
    """The learning rate of step 1 to `steps`: from 0 to `highest` over the warm-up, then linearly to the final one.

    The fall is measured from step 0, so that it does not depend on the warm-up.
    """
    if step < section.learning_rate_warmup:
        return highest * step / section.learning_rate_warmup
    return section.final_learning_rate + (highest - section.final_learning_rate) * (1.0 - step / steps)
