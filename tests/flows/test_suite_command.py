"""`turnwise suite` on a real MLflow store and real episodes in two worlds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import record, tiny, tracking_uri

import turnwise as tw
from flows.commands import cli
from turnwise.errors import ConfigurationError
from turnwise.reporting.data.suites import SuiteReport, collect_suite
from turnwise.reporting.html.pages import suite_page
from turnwise.results.cells import cell
from turnwise.statistics.suite import Suite
from turnwise.tracking.finding import find_all_runs
from turnwise.tracking.library import PARENT
from turnwise.world import make_world

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two rules on two lakes, and a third that was tested on one of them only."""
    folder = tmp_path_factory.mktemp("home")
    large = tiny("data.test_tasks=20", "world.parameters.size=4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder))
        record("small", {"good": 0.95, "poor": 0.2}, SEEDS, tiny("data.test_tasks=20"))
        record("large", {"good": 0.9, "poor": 0.1, "alone": 0.5}, SEEDS, large)
        record("later", {"alone": 0.5}, (1,), tiny("data.test_tasks=20"), final_test=False)
        yield folder


def collected(**wanted: list[str]) -> SuiteReport:
    return collect_suite(find_all_runs(tracking_uri()), **wanted)


def test_what_is_recorded_is_measured_and_what_is_not_is_said(home: Path) -> None:
    whole = collected()
    assert whole.rules == ["good", "poor", "alone"]
    small, large = whole.worlds
    assert (small, large) == ("frozen_lake (small)", "frozen_lake (large)")
    assert whole.missing == [f"alone in {small}: 1 run, not tested, left out or not in this store"]
    assert whole.suite is not None and whole.suite.worlds == [large]
    pair = collected(rules=["good", "poor"])
    assert pair.suite is not None and pair.suite.worlds == [small, large] and pair.missing == []
    good, poor = pair.suite.rules
    assert good.interquartile_mean.value > poor.interquartile_mean.value
    assert (good.rank.value, poor.rank.value) == (1.0, 2.0)
    assert pair.headline.startswith("good has the highest interquartile mean over 2 worlds: ")
    alike = Suite(pair.suite.worlds, [good, replace(good, name="twin")], [])
    assert replace(pair, suite=alike).headline.startswith(
        "good and twin have the highest interquartile mean over 2 worlds"
    )
    unheard = collected(rules=["good", "unheard-of"])
    assert unheard.missing == [f"unheard-of in {world}: no run" for world in (small, large)]
    assert unheard.headline == "No world has runs of all 2 rules"


def test_two_sets_of_parameters_are_two_worlds_though_ablations_of_one_name_had_them(home: Path) -> None:
    runs = [replace(run, ablation="lakes") for run in find_all_runs(tracking_uri())]
    parents = list(dict.fromkeys(run.tags[PARENT][:6] for run in runs))
    report = collect_suite(runs, ["good", "poor"])
    assert report.worlds == [f"frozen_lake (lakes {parent})" for parent in parents[:2]]
    assert report.suite is not None and report.suite.worlds == report.worlds


def test_names_that_no_run_has_are_refused_with_those_that_are_recorded(home: Path) -> None:
    for wanted in ({"rules": ["god"]}, {"worlds": ["lake"]}, {"rules": ["good"], "worlds": ["lake"]}):
        with pytest.raises(ConfigurationError, match=r"name some of good in frozen_lake \(small\), .*TW-unknown-run"):
            collected(**wanted)


def test_a_score_lies_between_the_random_policy_and_the_oracle_of_its_ablation(home: Path) -> None:
    run = next(run for run in find_all_runs(tracking_uri()) if run.artifacts.variant == "good")
    world = make_world("frozen_lake", run.artifacts.experiment["world"]["parameters"])
    assert run.artifacts.test is not None
    score, low, high = (
        cell(each, world, world.primary_column)
        for each in (run.artifacts.test, run.baselines["random"], run.baselines["oracle"])
    )
    assert score is not None and low is not None and high is not None
    whole = collected()
    assert whole.cells["good"][whole.worlds[0]].sample[0] == pytest.approx((score - low) / (high - low))


def test_the_command_prints_and_writes_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cli.run(["suite", "--to", str(tmp_path)])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines()[:-2])) <= 80
    assert "Missing: alone in frozen_lake" in printed and "good over poor" in printed
    page = (tmp_path / "suite.html").read_text()
    assert page == suite_page(collected()) and "1 run, not tested, left out or not in this store" in page
    assert json.loads((tmp_path / "suite.json").read_text())["rules"] == ["good", "poor", "alone"]
    assert (tmp_path / "suite.png").is_file() and (tmp_path / "suite.csv").is_file()


def test_python_has_the_same_suite(home: Path) -> None:
    by_name = tw.runs("small", "large").suite(rules=["good", "poor"])
    assert by_name == collected(rules=["good", "poor"])


def test_runs_that_another_store_holds_are_missing(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = find_all_runs(tracking_uri())
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path))
    found = collect_suite(recorded, ["good"])
    assert found.suite is None and len(found.missing) == 2
    assert all(each.endswith("3 runs, not tested, left out or not in this store") for each in found.missing)


def test_without_anything_recorded_it_says_what_to_do(turnwise_home: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-unknown-run"):
        find_all_runs(tracking_uri())
