"""The simulation of 64 cards: mean-value analysis against numbers by hand, and the page is what the command writes."""

from __future__ import annotations

import json

import pytest

from benchmarks.cards import ASSUMED, PAGE, Case, demands, page, policy_bytes_per_weight, throughput
from benchmarks.shared_parts import FOUND

COUNTS = {"Prefect events": 20.0, "MLflow rows": 100.0, "PUT requests": 35.0, "GET requests": 55.0, "bytes, other": 0.0}


def test_one_queue_gives_the_throughput_worked_by_hand() -> None:
    assert throughput(0.0, [2.0], 5) == pytest.approx(1 / 2), "always at work"
    # One run: 1 / (1 + 1). The second finds the queue half full: 2 / (1 + 1.5).
    assert throughput(1.0, [1.0], 1) == pytest.approx(0.5)
    assert throughput(1.0, [1.0], 2) == pytest.approx(0.8)
    # Two queues of 1: each is found at half by the second run.
    assert throughput(0.0, [1.0, 1.0], 2) == pytest.approx(2 / 3)


def test_throughput_stays_below_both_bounds_and_reaches_the_slowest_part() -> None:
    rates = [throughput(10.0, [1.0, 0.1], runs) for runs in range(1, 200)]
    assert all(rate <= min(runs / 11.1, 1.0) + 1e-12 for runs, rate in enumerate(rates, start=1))
    assert rates == sorted(rates) and rates[-1] == pytest.approx(1.0, abs=1e-3)


def test_what_a_part_works_for_an_iteration_is_what_it_costs_by_what_it_takes() -> None:
    case = Case("of 1e9 weights", 1e9, 8, 12.0)
    assert demands(case, COUNTS) == pytest.approx(
        {
            "Prefect's server": 20 / 200,
            "MLflow's database": 100 / 5000,
            "the store's requests": 35 / 3500 + 55 / 5500,
            "the store's bytes": 12e9 / 20e9,
        }
    )
    assert case.runs == 8 and case.upload_seconds == 12.0
    operations = 8 * 1e9 * 128 * 3000 / (ASSUMED["arithmetic"].value * 8)
    assert case.compute_seconds == pytest.approx(800 * (2e9 / 1.675e12 + 0.005) + operations + 5)


def test_the_page_is_what_the_command_writes() -> None:
    counts = json.loads(FOUND.read_text())
    assert page(counts, policy_bytes_per_weight(counts)) in PAGE.read_text()
