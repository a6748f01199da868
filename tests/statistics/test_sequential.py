"""Looks on the way: against published bounds, and by simulation; `python -m benchmarks.sequential` simulates more."""

import numpy as np
import pytest
from scipy import stats

from turnwise.seeding import generator
from turnwise.statistics.sequential import (
    looks_until,
    nominal_levels,
    repeated_interval,
    sequential_p,
    spent,
)

SIMULATIONS = 2000
LOOKS = looks_until(3, 1, 20)


@pytest.mark.parametrize(
    ("spending", "bounds"),
    [
        # Five looks, two-sided level 0.05, as programs for Lan and DeMets' method print them; derived anew below.
        ("O'Brien-Fleming", (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)),
        ("Pocock", (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)),
    ],
)
def test_bounds_are_those_that_are_published(spending, bounds) -> None:
    levels = nominal_levels((4, 8, 12, 16, 20), 20, 0.05, spending)
    assert stats.norm.isf(np.array(levels) / 2) == pytest.approx(bounds, abs=2e-4)
    assert spent(1.0, 0.05, spending) == pytest.approx(0.05)


@pytest.mark.parametrize("spending", ["O'Brien-Fleming", "Pocock"])
def test_the_chance_to_cross_a_bound_by_a_look_is_what_may_be_spent_by_then(spending) -> None:
    looks = np.array([5, 10, 20])
    bounds = stats.norm.isf(np.array(nominal_levels(tuple(looks.tolist()), 20, 0.05, spending)) / 2)
    # Means of the first n of the same normal differences: two of them correlate by sqrt(fewer / more).
    correlation = np.sqrt(np.minimum.outer(looks, looks) / np.maximum.outer(looks, looks))
    for number in (1, 2, 3):
        within = stats.multivariate_normal(cov=correlation[:number, :number], seed=1).cdf(
            bounds[:number], lower_limit=-bounds[:number]
        )
        assert 1 - within == pytest.approx(spent(looks[number - 1] / 20, 0.05, spending), abs=2e-5)


def test_one_look_at_the_end_is_the_test_itself() -> None:
    assert nominal_levels((20,), 20, 0.05) == pytest.approx((0.05,))
    assert sequential_p([0.03], [20], 20) == pytest.approx(0.03, rel=2e-3)
    assert sequential_p([1.0], [20], 20) == pytest.approx(1.0)


def test_a_sequential_p_is_the_level_at_which_a_look_stops() -> None:
    looks, level = (5, 10, 15, 20), 0.05
    bounds = nominal_levels(looks, 20, level)
    for look in range(4):
        p_values = [1.0] * look + [bounds[look]]
        assert sequential_p(p_values, looks[: look + 1], 20) == pytest.approx(level, rel=2e-3)
    # What was seen before stays: a later p that is larger takes nothing back.
    assert sequential_p([1.0, bounds[1], 0.9], looks[:3], 20) == pytest.approx(level, rel=2e-3)


def test_the_error_rate_is_kept_over_all_looks_and_seeds_are_saved() -> None:
    # Looked at after each of 3 to 20 seeds, an uncorrected test errs in 22 % of the simulations.
    bounds = np.array(nominal_levels(LOOKS, 20, 0.05))
    sample = generator(1, "sequential").normal(size=(SIMULATIONS, 20))

    def crossed(effect: float) -> np.ndarray:
        p = [stats.ttest_1samp(effect + sample[:, :seeds], 0.0, axis=1).pvalue for seeds in LOOKS]
        return bounds >= np.array(p).T

    allowed = 4 * (0.05 * 0.95 / SIMULATIONS) ** 0.5
    assert crossed(0.0).any(axis=1).mean() == pytest.approx(0.05, abs=allowed)
    found = crossed(1.0)
    seeds = np.where(found.any(axis=1), np.array(LOOKS)[found.argmax(axis=1)], 20)
    fixed = (stats.ttest_1samp(1.0 + sample, 0.0, axis=1).pvalue <= 0.05).mean()
    assert found.any(axis=1).mean() > fixed - 0.02 and seeds.mean() < 0.7 * 20


def test_the_repeated_interval_excludes_0_where_the_look_stops() -> None:
    nominal = nominal_levels((5, 10), 20, 0.05)[1]
    critical = float(stats.t.isf(nominal / 2, 9))
    assert repeated_interval(critical, 1.0, 9, nominal) == pytest.approx((0.0, 2 * critical))


@pytest.mark.parametrize("looks", [(), (1, 5), (5, 5), (5, 25)])
def test_looks_that_do_not_ascend_to_the_last_are_refused(looks) -> None:
    with pytest.raises(ValueError, match="must ascend from 2 seeds or more to at most 20"):
        nominal_levels(looks, 20, 0.05)


def test_looks_end_with_the_most_seeds() -> None:
    assert looks_until(3, 4, 10) == (3, 7, 10)
    assert looks_until(5, 5, 10) == (5, 10)
