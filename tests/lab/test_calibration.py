"""Calibration: when a run has collapsed, what a rule is worth, and that the best one is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.calibrate import Calibration, Cost, data, in_short, page, show_calibration, write_calibration
from lab.calibration import (
    SMOOTHING,
    AlarmScore,
    MonitoredRun,
    calibrate,
    judge,
    onset,
    raised_at,
    warning,
)
from turnwise.config.monitoring import AlarmRule
from turnwise.errors import ConfigurationError
from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
EARLY = AlarmRule(below=0.5, patience=2)
COST = Cost(
    iteration_milliseconds=2000.0,
    trained_tokens=4000.0,
    monitors_milliseconds=50.0,
    probe_milliseconds=140.0,
    probe_tokens=3000.0,
)


def run(seed: int, success: list[float], entropy: list[float], world: str = "hill") -> MonitoredRun:
    history = [
        {"success": each, "entropy_of_start": value, "reward_deviation_of_start": 1.0}
        for each, value in zip(success, entropy, strict=True)
    ]
    return MonitoredRun(world, "collapsed" if success[-1] == 0 else "steady", seed, history)


def collapsed(seed: int) -> MonitoredRun:
    """Success is 1 in ten iterations and 0 afterwards; its entropy falls at the ninth."""
    return run(seed, [1.0] * 10 + [0.0] * 8, [1.0] * 8 + [0.3] * 10)


def steady(seed: int) -> MonitoredRun:
    """Its entropy dips once, at the fifth iteration, for one iteration."""
    return run(seed, [1.0] * 18, [1.0] * 4 + [0.4] + [1.0] * 13)


def test_a_run_has_collapsed_from_where_its_mean_falls_below_half_of_its_best_for_good() -> None:
    # The mean of five is 0.4, below half of 1, once three of them are 0: at the thirteenth.
    assert onset([1.0] * 10 + [0.0] * 8) == 13
    assert onset([1.0] * 10 + [0.0] * 4 + [1.0] * 4) is None  # it came back
    assert onset([0.2] * 18) is None  # it never rose
    # At the start the mean is of what there is: 1, 1/2, 1/3, 1/4 of a warm start that is lost at once.
    assert onset([1.0] + [0.0] * 8) == 3
    assert onset([1.0] * (SMOOTHING - 1)) is None
    assert onset([1.0] * 10 + [0.0] * 2) is None  # its mean is still above


def test_an_alarm_is_raised_when_its_patience_is_used_up() -> None:
    assert raised_at(collapsed(1).history, "entropy_of_start", EARLY) == 10
    assert raised_at(steady(1).history, "entropy_of_start", EARLY) is None
    assert raised_at(steady(1).history, "entropy_of_start", AlarmRule(below=0.5)) == 5


def test_a_rule_is_judged_by_detections_leads_and_false_alarms() -> None:
    runs = [collapsed(1), collapsed(2), steady(1)]
    patient = judge(runs, {"entropy_of_start": EARLY})
    assert (patient.collapses, patient.in_time, patient.leads, patient.lead) == (2, 2, (3, 3), 3)
    assert (patient.healthy, patient.false_alarms, patient.late) == (1, 0, 0)
    hasty = judge(runs, {"entropy_of_start": AlarmRule(below=0.5)})
    assert (hasty.false_alarms, hasty.leads) == (1, (4, 4))
    late = judge(runs, {"entropy_of_start": AlarmRule(below=0.5, patience=6)})
    assert (late.in_time, late.late, late.lead) == (0, 2, None)
    assert judge(runs, {}).in_time == 0


def test_the_chosen_rule_raises_no_false_alarm_where_it_was_chosen_and_is_tried_elsewhere() -> None:
    (found,) = calibrate([collapsed(1), steady(1)], [collapsed(2), steady(2)])
    assert found.monitor == "entropy_of_start"  # the deviation of rewards says nothing here
    # At once the dip of the steady run would do: only a bound below it, 0.35, is safe without patience.
    assert found.rule == AlarmRule(below=0.35)
    assert (found.chosen_on.in_time, found.chosen_on.lead, found.chosen_on.false_alarms) == (1, 4, 0)
    assert (found.tried_on.in_time, found.tried_on.healthy) == (1, 1)


def test_a_warning_is_the_mean_lead_over_rates_of_false_alarms_up_to_a_quarter() -> None:
    def scored(false_alarms: int, leads: tuple[int, ...]) -> AlarmScore:
        return AlarmScore(collapses=2, in_time=len(leads), late=0, healthy=20, false_alarms=false_alarms, leads=leads)

    # One of two collapses is told 4 iterations ahead without a false alarm: 2 in the mean. With one in twenty it is 5.
    curve = [scored(0, (4,)), scored(1, (4, 6)), scored(8, (9, 9))]
    assert warning(curve) == pytest.approx((2 * 0.05 + 5 * 0.20) / 0.25)
    assert warning(curve[2:]) == 0.0  # wrong in 8 of 20 runs
    assert warning([]) == 0.0


def test_the_monitor_that_warns_longer_comes_first() -> None:
    def two_signs(seed: int, falls: bool) -> MonitoredRun:
        success = [0.9] * 10 + [0.0 if falls else 0.9] * 8
        history = [
            {
                "success": each,
                "entropy_of_start": 0.3 if falls and place >= 8 else 1.0,
                "reward_deviation_of_start": 0.2 if falls and place >= 5 else 1.0,
            }
            for place, each in enumerate(success)
        ]
        return MonitoredRun("hill", "collapsed" if falls else "steady", seed, history)

    found = calibrate([two_signs(1, True), two_signs(1, False)], [two_signs(2, True), two_signs(2, False)])
    assert [(each.monitor, each.warning, each.warning_elsewhere) for each in found] == [
        ("reward_deviation_of_start", 7.0, 7.0),  # from iteration 6, and success has collapsed at 13
        ("entropy_of_start", 4.0, 4.0),
    ]


def test_where_nothing_collapses_no_rule_is_found() -> None:
    assert calibrate([steady(1)], [steady(2)]) == []


@pytest.fixture
def calibration() -> Calibration:
    choosing = [collapsed(1), steady(1), run(1, [0.5] * 18, [1.0] * 18, world="flat")]
    trying = [collapsed(2), steady(2), run(2, [0.5] * 18, [1.0] * 18, world="flat")]
    return Calibration(choosing, trying, calibrate(choosing, trying), {"entropy_of_start": EARLY}, COST)


def test_the_page_tells_what_was_found_and_what_the_default_rules_are_worth(calibration: Calibration) -> None:
    text = page(calibration)
    assert "| entropy_of_start | below 0.35 | 4.0 | 1 of 1 | 0 | 0 of 2 | 4 | 4.0 | 1 of 1 | 0 | 0 of 2 | 4 |" in text
    assert "detected 1 of 1 collapses in time, a median of 3 iterations ahead, 0 too late" in " ".join(text.split())
    assert in_short(AlarmRule(below=1.0, above=2.0, patience=3)) == "below 1 or above 2, 3 times"
    assert "50 ms an iteration, 2.5% of the 2,000 ms" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") in (7, 10, 13) for line in tables)
    assert data(calibration)["runs"][0] == {
        "world": "hill",
        "variant": "collapsed",
        "seed": 1,
        "half": "choosing",
        "onset": 13,
    }


def test_runs_that_would_not_be_seen_to_their_end_are_refused(tmp_path: Path) -> None:
    guarded = load(ROOT / "params.yaml")
    with pytest.raises(ConfigurationError, match="TW-calibration-ends-early"):
        show_calibration([guarded], {}, tmp_path)
    alone = load(ROOT / "params.yaml", [ROOT / "experiments" / "echo-trap.yaml"], ["ablation.seeds=[1]"])
    with pytest.raises(ConfigurationError, match="TW-too-few-seeds"):
        show_calibration([alone], {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_page_figure_and_data_are_written_and_the_same_again(calibration: Calibration, tmp_path: Path) -> None:
    write_calibration(calibration, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["echo-trap.json", "echo-trap.md", "echo-trap.png"]
    assert re.search(r"!\[.+\]\(echo-trap\.png\)", (tmp_path / "echo-trap.md").read_text())
    before = {name: (tmp_path / name).read_bytes() for name in names}
    write_calibration(calibration, tmp_path)
    assert before == {name: (tmp_path / name).read_bytes() for name in names}
