"""The learning rate of supervised steps, worked by hand."""

from __future__ import annotations

import pytest

from turnwise.config.schema import SupervisedSteps
from turnwise.policy.learner.schedule import warmed_up_and_falling


def steps(warm_up: int, final: float) -> SupervisedSteps:
    return SupervisedSteps(
        batch=1, learning_rate_warmup=warm_up, final_learning_rate=final, weight_decay=0.0, micro_batch_tokens=1
    )


def test_it_grows_from_zero_and_then_falls_linearly_to_the_last_step() -> None:
    rates = [warmed_up_and_falling(step, 10, 1.0, steps(4, 0.2)) for step in range(1, 11)]
    assert rates[:3] == [0.25, 0.5, 0.75]
    assert rates[3:] == pytest.approx([0.68, 0.60, 0.52, 0.44, 0.36, 0.28, 0.20])


def test_the_fall_does_not_depend_on_the_warm_up() -> None:
    # 0.4 * step / 4 for three steps; then 0.1 + 0.3 * (1 - step / 10).
    expected = [0.1, 0.2, 0.3, 0.28, 0.25, 0.22, 0.19, 0.16, 0.13, 0.1]
    rates = [warmed_up_and_falling(step, 10, 0.4, steps(4, 0.1)) for step in range(1, 11)]
    assert rates == pytest.approx(expected)


def test_without_a_warm_up_it_falls_from_the_first_step() -> None:
    assert warmed_up_and_falling(1, 2, 1.0, steps(0, 0.0)) == 0.5
