"""The learning rate of supervised steps and of updates, worked by hand."""

from __future__ import annotations

import pytest

from turnwise.config.schema import SupervisedSteps
from turnwise.policy.learner.schedule import update_learning_rate, warmed_up_and_falling
from turnwise.policy.learner.settings import UpdateSettings


def steps(warm_up: int, final: float) -> SupervisedSteps:
    return SupervisedSteps(
        learning_rate_warmup=warm_up, final_learning_rate=final, weight_decay=0.0, micro_batch_tokens=1
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


def rates(steps: int, **options: object) -> list[float]:
    settings = UpdateSettings(learning_rate=0.8, temperature=1.0, micro_batch_tokens=1, **options)
    return [update_learning_rate(step, settings) for step in range(1, steps + 1)]


def test_a_constant_rate_of_an_update_may_be_warmed_up() -> None:
    assert rates(3) == [0.8, 0.8, 0.8]
    # MT-GRPO's twenty steps: 0.8 k / 20.
    warmed_up = rates(22, learning_rate_warmup=20)
    assert warmed_up[:3] == pytest.approx([0.04, 0.08, 0.12])
    assert warmed_up[18:] == pytest.approx([0.76, 0.8, 0.8, 0.8])


def test_a_linear_rate_falls_to_its_share_at_the_last_step_and_stays_there() -> None:
    assert rates(5, learning_rate_schedule="linear", run_steps=4) == pytest.approx([0.6, 0.4, 0.2, 0.0, 0.0])
    # 0.8 (1/4 + 3/4 (1 - k/4))
    quarter = rates(5, learning_rate_schedule="linear", run_steps=4, final_learning_rate_share=0.25)
    assert quarter == pytest.approx([0.65, 0.5, 0.35, 0.2, 0.2])


def test_a_cosine_rate_is_half_way_at_half_of_the_steps() -> None:
    # (1 + cos(pi k / 4)) / 2 is 0.853553, 0.5, 0.146447 and 0.
    expected = [0.6828427, 0.4, 0.1171573, 0.0]
    assert rates(4, learning_rate_schedule="cosine", run_steps=4) == pytest.approx(expected, abs=1e-7)


def test_a_falling_rate_is_warmed_up_first_and_falls_as_it_would_without() -> None:
    warmed_up = rates(4, learning_rate_schedule="linear", run_steps=4, learning_rate_warmup=2)
    assert warmed_up == pytest.approx([0.4, 0.4, 0.2, 0.0])
