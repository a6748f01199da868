"""`turnwise compare` on a real MLflow store and real episodes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import record, tiny, tracking_uri

from flows.commands import cli
from tasks.restoring import opened
from turnwise.data.outcomes import EarlyEnd
from turnwise.errors import ConfigurationError, DiskFull
from turnwise.exports.other_trackers import write_for
from turnwise.records.sources import answer
from turnwise.reporting.data.run_groups import at_equal_cost, grouped, how_tested, judged, outcomes_of, references
from turnwise.reporting.data.verdicts import standings
from turnwise.results.cells import cell
from turnwise.results.costs import seconds_of
from turnwise.statistics import Interval
from turnwise.statistics.evaluation_protocol import require_comparable
from turnwise.store import default_store
from turnwise.tracking.finding import find_runs
from turnwise.tracking.library import PARENT
from turnwise.training_runs.iteration_stages import spending
from turnwise.world import make_world

SEEDS = (1, 2, 3)
ENDED_RACE = "good − poor: decided after 3 of at most 20 seeds."
SPENT = {"iterations": 2, "sampled_tokens": 200, "seconds": 4}
"""By each run in two iterations; these made-up rollouts hold no turns, and their updates count no tokens."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three ablations: the second as the first, the third on another task set and with another temperature."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder))
        record("first", {"good": 0.95, "poor": 0.2}, SEEDS, tiny("data.test_tasks=20"))
        record("second", {"good": 0.95}, (5, 6), tiny("data.test_tasks=20"))
        record("third", {"other": 0.9}, SEEDS, tiny("data.test_tasks=12", "evaluation.temperature=0.5"), version="2")
        record(
            "collapsing",
            {"good": 0.95, "poor": 0.2},
            SEEDS,
            tiny("data.test_tasks=20"),
            ended={"poor seed 2": EarlyEnd(iteration=1, planned=2, cause="guard", by=("no_signal",), message="")},
            left_out={"good seed 3": "mismatch"},
        )
        record("race", {"good": 0.95, "poor": 0.2}, SEEDS, tiny("data.test_tasks=20"), race=ENDED_RACE)
        record("racing", {"good": 0.95, "poor": 0.2}, SEEDS, tiny("data.test_tasks=20"), race="")
        record("unfinished", {"good": 0.9}, (1,), tiny("data.test_tasks=20"), final_test=False)
        yield folder


def groups(*wanted: str) -> list:
    return grouped([run for each in wanted for run in find_runs(tracking_uri(), each)])


def test_the_variants_of_an_ablation_are_told_apart(home: Path) -> None:
    found = groups("first")
    assert [(group.name, sorted(group.runs)) for group in found] == [("good", list(SEEDS)), ("poor", list(SEEDS))]
    judgement = judged(found, 0.6)
    (pair,) = judgement.pairs
    assert (pair.first, pair.second, pair.verdict, pair.paired) == ("good", "poor", "higher", True)
    gains = {standing.name: standing.gain for standing in judgement.standings}
    assert gains["good"] is not None and gains["good"].verdict == "higher"
    assert all(standing.normalised is not None for standing in judgement.standings)
    assert [each.name for each in judgement.learning] == ["good", "poor"]


def test_runs_of_two_ablations_are_named_by_both_and_seeds_of_their_own_are_not_paired(home: Path) -> None:
    found = groups("first", "second")
    assert [group.name for group in found] == ["first: good", "first: poor", "second: good"]
    require_comparable(how_tested(found))
    pairs = {(pair.first, pair.second): pair for pair in judged(found, 0.8).pairs}
    assert not pairs["first: good", "second: good"].paired
    assert pairs["first: good", "second: good"].verdict == "not distinguishable"


def test_warm_starts_and_added_seeds_of_ablations_of_one_name_are_told_apart(home: Path) -> None:
    runs = [replace(run, ablation="one") for name in ("race", "third") for run in find_runs(tracking_uri(), name)]
    race, third = (f"one {parent[:6]}" for parent in dict.fromkeys(run.tags[PARENT] for run in runs))
    found = grouped(runs)
    assert [group.name for group in found] == [f"{race}: good", f"{race}: poor", f"{third}: other"]
    assert {f"warm start ({race})", f"warm start ({third})"} <= references(found).keys()
    assert f"The seeds of {race} were added" in judged(found, 0.8).notes[-1]


def test_runs_of_one_name_have_a_folder_each_in_tensorboards_files(home: Path, tmp_path: Path) -> None:
    found = [run for each in ("first", "race", "second") for run in find_runs(tracking_uri(), each)]
    write_for("tensorboard", found, tmp_path)
    folders = {path.name for path in tmp_path.iterdir()}
    assert len(folders) == len(found) and {"good seed 5", "good seed 6"} < folders
    assert f"race good seed 1 {found[6].id}" in folders


def test_runs_that_were_not_tested_alike_are_refused_with_what_differs(home: Path) -> None:
    found = groups("first", "third")
    with pytest.raises(ConfigurationError) as refused:
        require_comparable(how_tested(found))
    message = str(refused.value)
    for expected in (
        "test task set: ",
        "world version: 1 (first: good seed 1",
        "evaluation.temperature: 1.0 (",
        "--anyway",
    ):
        assert expected in message
    assert "evaluation.every" not in message and "world.parameters" not in message
    # Anyway: the tasks are not the same, so whole runs are compared.
    overs = {(pair.first, pair.second): pair.difference.over for pair in judged(found, 0.8).pairs}
    assert overs["first: good", "first: poor"] == "seeds and tasks"


def test_a_run_without_a_test_and_two_runs_with_one_seed_are_refused(home: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\b1\b.*TW-untested-run"):
        groups("unfinished")
    runs = find_runs(tracking_uri(), "good seed 5")
    assert len(grouped(runs * 2)) == 1  # the same run twice is one


def test_variants_are_compared_at_the_same_iterations_tokens_and_seconds(home: Path) -> None:
    # Neither the evaluations nor the critic, which is the warm start's trunk, cost a second.
    budgets = {each.budget: each for each in at_equal_cost(groups("first"), spending())}
    assert {name: each.spent for name, each in budgets.items()} == SPENT
    assert budgets["sampled_tokens"].shown["good"].value > budgets["sampled_tokens"].shown["poor"].value
    assert budgets["sampled_tokens"].shown == budgets["iterations"].shown


def test_a_run_that_was_ended_counts_and_one_that_a_fault_left_out_does_not(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, poor = groups("collapsing")
    assert (list(good.runs), list(good.left_out), list(poor.runs)) == ([1, 2], [3], [1, 2, 3])
    judgement = judged([good, poor], 0.8)
    assert [standing.mean.count for standing in judgement.standings] == [2, 3]
    # Tested alike, so that the means are those of the ablation in which no run was ended.
    whole = judged(groups("first"), 0.8)
    assert len(whole.standings[1].mean.sample) == len(judgement.standings[1].mean.sample)
    outcomes = outcomes_of([good, poor])
    assert outcomes is not None
    assert outcomes.sentences() == [
        "1 of 3 runs of good was left out, by a fault (mismatch).",
        "1 of 3 runs of poor was ended by no_signal.",
    ]
    assert outcomes_of(groups("first")) is None
    command("collapsing")
    assert outcomes.sentences()[1] in " ".join(capsys.readouterr().out.split())
    start = {"warm start": Interval(0.5, None, None, "tasks", 1)}
    names = [row[0] for row in standings(judgement, start, outcomes).rows]
    assert names == ["good\n2 seeds\n1 of 3 left out", "poor\n3 seeds\n1 of 3 ended", "warm start\n1 task"]


def test_what_an_ended_run_has_spent_does_not_limit_the_budget_of_the_others(home: Path) -> None:
    budgets = {each.budget: each for each in at_equal_cost(groups("collapsing"), spending())}
    assert {name: each.spent for name, each in budgets.items()} == SPENT
    (ended,) = (run for run in find_runs(tracking_uri(), "collapsing/poor seed 2"))
    world = make_world("frozen_lake", ended.artifacts.experiment["world"]["parameters"])
    last = cell(ended.artifacts.iterations[0]["evaluation"], world, world.primary_column)
    assert budgets["iterations"].shown["poor"].sample[1] == last


def test_a_fault_of_every_run_leaves_nothing_to_compare(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-faulty-runs"):
        grouped(find_runs(tracking_uri(), "collapsing/good seed 3"))


def test_a_rollout_of_several_rounds_took_as_long_as_all_of_them(home: Path) -> None:
    with default_store().write("rollout") as draft:
        draft.metrics["rounds"] = 2
    default_store().record_clock(draft.reference, {"seconds": 0.5, "sampling_seconds": 3.0, "world_seconds": 1.0})
    assert seconds_of(draft.reference) == 4.5


def command(*arguments: str) -> None:
    cli.run(["compare", *arguments])


def test_the_command_prints_tables_that_fit_and_writes_them(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command("first", "--csv", str(tmp_path / "tables"), "--html", str(tmp_path / "pages" / "page.html"))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert all(text in printed for text in ("higher", "Holm", "warm start", "random", "oracle", "20 tasks"))
    with (tmp_path / "tables" / "pairs.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["verdict"] == "higher" and row[""] == "good − poor"
    header = ",mean,interquartile mean,normalised,gain over the warm start,p (Holm),verdict"
    assert (tmp_path / "tables" / "standings.csv").read_text().splitlines()[0] == header
    page = (tmp_path / "pages" / "page.html").read_text()
    assert "Pairs of variants" in page and "src=" not in page and "href=" not in page


def test_the_command_compares_what_was_not_tested_alike_only_when_told_to(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match="TW-runs-not-comparable"):
        command("first", "third")
    command("first", "third", "--anyway")
    assert "Not tested alike, compared anyway: test task set: " in capsys.readouterr().out


def test_a_full_disk_outside_of_a_stage_is_reported_in_one_sentence(home: Path) -> None:
    with pytest.raises(DiskFull, match="TW-full-disk"):
        command("first", "--html", "/dev/full")


def test_that_a_race_is_tested_once_here_is_said_with_what_its_looks_came_to(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("race")
    printed = " ".join(capsys.readouterr().out.split())
    assert "Here each is tested once, as if their number had been fixed" in printed and ENDED_RACE in printed
    assert judged(groups("racing"), 0.8).notes[-1].endswith("at all looks together: they are still added.")
    assert not any("looks" in note for note in judged(groups("first"), 0.8).notes)


def test_the_lineage_of_a_p_says_where_seeds_were_added_that_it_tests_once(home: Path) -> None:
    said = {
        name: answer("good - poor/corrected p", find_runs(tracking_uri(), name), opened=opened).manner
        for name in ("first", "race", "racing")
    }
    once = f"{said['first']}; tested once, as if the number of seeds had been fixed. At all looks together: "
    assert (said["race"], said["racing"]) == (once + ENDED_RACE, once + "seeds are still added")
