"""An ablation is recorded from plain data: its runs are found again, and what differs between variants comes first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tracking_samples import TASK_SET

from turnwise.data.outcomes import EarlyEnd
from turnwise.store import Reference
from turnwise.tracking import Recorder
from turnwise.tracking.ablations import COMPARISONS_TABLE, AblationDescription, TrackedAblation, differing_first
from turnwise.tracking.finding import BASELINES_FILE, UNCOMMITTED_FILE, newest_view, read_text
from turnwise.tracking.runs import NOTE, TrackedRun
from turnwise.tracking.views import ENTRY, with_entry

PLAIN = {"credit": {"estimator": "grpo", "options": {}}, "prompts": 8}
TURNS = {"credit": {"estimator": "mt-grpo", "options": {"rule": "paper"}}, "prompts": 8}
ABOUT = AblationDescription(
    name="credit rules",
    identity="identity",
    parameters={"prompts": 8},
    variants=[PLAIN, TURNS],
    tags={"commit": "c0de"},
    datasets=[TASK_SET],
    diff="-group_size = 8\n",
)


def test_what_differs_between_variants_keeps_its_name_and_the_rest_is_under_with() -> None:
    assert differing_first([PLAIN, TURNS], {"variant": "turns", "seed": 2, **TURNS}) == {
        "variant": "turns",
        "seed": "2",
        "credit.estimator": "mt-grpo",
        "credit.options.rule": "paper",
        "with/prompts": "8",
    }


def test_an_ablation_that_is_recorded_again_adds_no_run(open_recorder: Callable[[], Recorder], tmp_path: Path) -> None:
    first = TrackedAblation(open_recorder(), ABOUT)
    run = first.open("turns seed 1", "turns", 1, TURNS)
    other = first.open("plain seed 1", "plain", 1, PLAIN)
    run.finish("policy")
    again = TrackedAblation(open_recorder(), ABOUT)
    assert again.parent.id == first.parent.id
    assert again.open("turns seed 1", "turns", 1, TURNS).finished
    assert again.open("plain seed 1", "plain", 1, PLAIN).id == other.id
    assert [each.id for each in again.children.values()] == [run.id, other.id]
    assert TrackedAblation(open_recorder(), replace(ABOUT, identity="another")).parent.id != first.parent.id
    report = tmp_path / "report.html"
    report.write_text("<p>report</p>")
    uri = open_recorder().tracking_uri
    assert newest_view(uri) is None, "none has ended"
    client = open_recorder()._client
    client.set_experiment_tag(client.run(run.id).info.experiment_id, NOTE, "Ours since May.")
    again.close(
        report,
        "digest",
        {"table/turns/sampled": 0.5, "table/turns/sampled_low": 0.4},
        finding="turns beats plain.",
        comparisons={"comparison": ["turns − plain"], "verdict": ["higher"]},
    )
    assert (again.parent.finished, again.parent.result) == (True, "digest")
    found = open_recorder()._client.run(again.parent.id)
    assert found.data.metrics == {"table/turns/sampled": 0.5, "table/turns/sampled_low": 0.4}
    place = f"runs?viewStateShareKey=turnwise-{again.parent.id[:12]}&compareRunsMode=CHART"
    address = f"#/experiments/{found.info.experiment_id}/{place}"
    assert newest_view(uri) == ("credit rules", address)
    assert found.data.tags[NOTE] == "turns beats plain."
    described = client.get_experiment(found.info.experiment_id).tags[NOTE]
    assert described == f"credit rules: turns beats plain. [Curves and table]({address})\n\nOurs since May."
    table = json.loads(client.content(found, COMPARISONS_TABLE) or b"")
    assert table == {"columns": ["comparison", "verdict"], "data": [["turns − plain", "higher"]]}


def test_an_experiments_description_has_each_view_once_the_newest_first_and_what_else_was_written() -> None:
    def entry(number: int, said: str) -> str:
        return f"{number}: {said} [Curves](runs?{ENTRY}{number}&compareRunsMode=CHART)"

    described = "Read this first."
    for number, said in ((1, "old"), (2, "other"), (1, "new")):
        described = with_entry(entry(number, said), f"turnwise-{number}", described)
    assert described == "\n\n".join([entry(1, "new"), entry(2, "other"), "Read this first."])
    long = entry(3, "x" * 4900)
    assert with_entry(long, "turnwise-3", described) == f"{long}\n\nRead this first."
    assert with_entry(entry(4, "x" * 6000), "turnwise-4", "mine") == "mine", "what MLflow would refuse is left out"


def test_a_run_that_was_ended_is_finished_and_tagged_and_a_fault_fails_the_run_and_its_ablation(
    open_recorder: Callable[[], Recorder], tmp_path: Path
) -> None:
    tracked = TrackedAblation(open_recorder(), ABOUT)
    ended, faulty = (tracked.open(f"{name} seed 1", name, 1, own) for name, own in (("turns", TURNS), ("plain", PLAIN)))
    ended.mark_ended(EarlyEnd(iteration=3, planned=9, cause="alarm", by=("entropy",), message="..."))
    ended.finish("policy")
    faulty.leave_out("mismatch", "another engine")
    report = tmp_path / "report.html"
    report.write_text("<p>report</p>")
    sentence = "1 of 1 run of turns was ended by the alarm on entropy."
    tracked.close(report, "digest", outcomes=[sentence], fault="mismatch")

    def recorded(run: TrackedRun) -> tuple[str, dict[str, str]]:
        found = open_recorder()._client.run(run.id)
        return found.info.status, {name: tag for name, tag in found.data.tags.items() if name.startswith("turnwise.")}

    status, tags = recorded(ended)
    assert status == "FINISHED" and tags["turnwise.ended"] == "after iteration 3 of 9, by the alarm on entropy"
    assert (tags["turnwise.ended.iteration"], tags["turnwise.ended.by"]) == ("3", "the alarm on entropy")
    status, tags = recorded(faulty)
    assert (status, tags["turnwise.left_out"], tags["turnwise.failure"]) == ("FAILED", "mismatch", "another engine")
    status, tags = recorded(tracked.parent)
    assert status == "FAILED" and tags["turnwise.outcomes"] == sentence
    again = TrackedAblation(open_recorder(), ABOUT)
    mended = again.open("plain seed 1", "plain", 1, PLAIN)
    assert mended.id == faulty.id and not mended.finished
    for run in (mended, again.parent):
        status, tags = recorded(run)
        assert status == "RUNNING" and {"turnwise.left_out", "turnwise.outcomes"}.isdisjoint(tags)


def test_parent_and_children_hold_the_diff_and_the_parent_what_they_are_compared_with(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    tracked = TrackedAblation(recorder, ABOUT)
    tracked.compared_with({"oracle": Reference(kind="evaluation", digest="a" * 32)})
    child = tracked.open("turns seed 1", "turns", 1, TURNS)
    for run in (tracked.parent, child):
        assert read_text(recorder.tracking_uri, run.id, UNCOMMITTED_FILE) == ABOUT.diff
    baselines = read_text(recorder.tracking_uri, tracked.parent.id, BASELINES_FILE)
    assert baselines is not None and '"oracle"' in baselines
    unchanged = TrackedAblation(recorder, replace(ABOUT, identity="committed", diff=""))
    assert read_text(recorder.tracking_uri, unchanged.parent.id, UNCOMMITTED_FILE) is None
