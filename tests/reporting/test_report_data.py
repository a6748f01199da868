import json
import math
from dataclasses import replace

import pytest

from turnwise.reporting.data.tables import metric_files
from turnwise.results.report_data import STAGES, Curve, ReportColumn, ReportData, Row
from turnwise.statistics import Interval

NAMED = {"\u03c0": 0.1, "\u03c1": 0.2, "a b": 0.3, "a-b": 0.4}


def test_a_report_survives_its_json_unchanged(report):
    text = report.to_json()
    again = ReportData.from_json(text)
    assert again == report
    assert again.to_json() == text
    assert again.samples[0].trajectory.turns == report.samples[0].trajectory.turns


def test_the_json_is_json_for_any_reader(report):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(report.to_json(), parse_constant=refuse)["title"] == report.title


def test_a_number_that_json_cannot_hold_is_refused(report):
    with pytest.raises(ValueError, match="JSON"):
        replace(report, seconds={"update": math.nan}).to_json()


def test_the_time_account_is_told_in_one_order_whatever_the_order_it_was_given_in():
    seconds = {stage: float(place) for place, stage in enumerate(reversed(STAGES))}
    account = ReportData("t", "d", [], [], seconds=seconds).account()
    assert [stage for stage, _ in account] == list(STAGES)
    assert dict(account) == seconds


def test_what_contradicts_itself_is_refused():
    cell = Interval(0.5, None, None, "seeds", 1)
    with pytest.raises(ValueError, match="found also \\['b'\\]"):
        ReportData("t", "d", [ReportColumn("a", "a")], [Row("r", "variant", {"b": cell})])
    with pytest.raises(ValueError, match="must differ"):
        ReportData("t", "d", [ReportColumn("a", "a"), ReportColumn("a", "b")], [])
    with pytest.raises(ValueError, match="found also \\['coffee'\\]"):
        ReportData("t", "d", [], [], seconds={"coffee": 1.0})
    with pytest.raises(ValueError, match="ascend"):
        Curve("m", "m", "v", 1, [(2, 0.1), (1, 0.2)])
    with pytest.raises(ValueError, match="finite"):
        Curve("m", "m", "v", 1, [(1, math.nan)])


def test_a_sample_has_one_advantage_per_turn(report):
    with pytest.raises(ValueError, match="1 advantages for 2 turns"):
        replace(report.samples[0], advantages=[0.5])
    assert replace(report.samples[0], advantages=None).advantages is None


def test_rewards_are_weighted_by_level(report):
    sample = report.samples[0]
    first, second = (turn.rewards for turn in sample.trajectory.turns)
    # tool_execution 1 x 0.2 + answer_in_results 1 x 0.3; exact_match 1 x 1 + answer_present 1 x 0.2 + format 1 x 0.1
    assert sample.weighted(first, "turn") == pytest.approx(0.5)
    assert sample.weighted(first, "outcome") == 0
    assert sample.weighted(second, "outcome") == pytest.approx(1.3)


def test_rows_whose_names_differ_in_other_than_plain_letters_have_a_file_of_metrics_each():
    rows = [Row(name, "variant", {"success": Interval(value, None, None, "seeds", 1)}) for name, value in NAMED.items()]
    files = metric_files(ReportData("", "", [ReportColumn("success", "success")], rows))
    assert [json.loads(text) for text in files.values()] == [{"success": value} for value in NAMED.values()]
