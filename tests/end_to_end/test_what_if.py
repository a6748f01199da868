"""`turnwise what-if` on a recorded run: what a run with the other settings made, and without sampling."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from comparison import Computed

import turnwise as tw
from flows.commands import cli
from tests.stage_calls import computed, stage_calls
from turnwise.errors import ConfigurationError
from turnwise.policy.model_files import MODEL_FILES
from turnwise.records.record import recorded_here
from turnwise.records.what_if import other_experiment
from turnwise.store import default_store
from turnwise.tracking.finding import RecordedRun

pytestmark = pytest.mark.chain

OTHERWISE = ["credit.estimator=mt-grpo", 'credit.options={"rule": "paper"}']


@pytest.fixture
def runs(tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, RecordedRun]:
    """Those of the tiny ablation by variant, in a home of the test's own."""
    shutil.copytree(tiny_ablation.home, tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    uri = f"sqlite:///{tmp_path / 'home' / 'mlflow.db'}"
    return {run.artifacts.variant: run for run in recorded_here(uri, "tiny")}


def test_another_rule_begins_with_its_own_options(runs: dict[str, RecordedRun]) -> None:
    recorded, other = other_experiment(runs["mt-grpo"], 1, ["credit.estimator=rloo"])
    assert recorded.credit.options["rule"] == "paper" and "rule" not in other.credit.options
    written = {"credit.options.rewards": "merged", "credit.estimator": "rloo"}
    assert other_experiment(runs["mt-grpo"], 1, written)[1].credit.options == {"rewards": "merged"}


def test_a_rollout_credited_otherwise_has_the_credit_of_the_run_that_learned_so(runs: dict[str, RecordedRun]) -> None:
    with stage_calls() as calls:
        found = tw.what_if("grpo-or seed 1", OTHERWISE, iteration=1, quiet=True)
    theirs = runs["mt-grpo"].artifacts.iterations[0]
    assert runs["grpo-or"].artifacts.iterations[0]["rollout"] == theirs["rollout"], "both start alike"
    assert found.report.lineage["credit, what if"] == str(theirs["credit"])
    assert [call.stage for call in calls] == ["credit", "first_steps"]
    assert computed(calls) == ["first_steps"], "the other run has computed that credit"
    steps = found.report.steps
    assert {name: step is not None and step["approximate_kl"] > 0 for name, step in steps.items()} == {
        "recorded": True,
        "what if": True,
    }
    cosine = found.report.cosines["what if"]
    assert cosine is not None and -1.0 <= cosine < 0.9999
    assert {each.key for each in found.report.settings} == {"credit.estimator", "credit.options.rule"}
    with stage_calls() as again:
        assert tw.what_if("grpo-or seed 1", OTHERWISE, iteration=1, quiet=True).report == found.report
    assert [call.stage for call in again] == ["credit", "first_steps"] and not computed(again)
    frame = found.turns()
    assert len(frame) == sum(rule.turns for rule in found.report.rules[:1])
    assert frame["what if"].sub(frame["recorded"]).abs().max() > 0


def test_what_the_policy_is_needed_for_is_scored_again(runs: dict[str, RecordedRun]) -> None:
    settings = {
        "credit.estimator": "optimal-token-baseline",
        "optimization.reference": {"coefficient": 0.1, "estimator": "k2", "place": "loss"},
    }
    with stage_calls() as calls:
        found = tw.what_if("grpo-or seed 1", settings, iteration=1, quiet=True)
    assert sorted(call.stage for call in calls) == ["credit", "first_steps", "reference", "rescore"]
    assert all(sample["what if"].token_advantages is not None for sample in found.shown)


def test_the_command_prints_tables_that_fit_and_writes_a_page_and_data(
    runs: dict[str, RecordedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [part for setting in OTHERWISE for part in ("-s", setting)]
    cli.run(["what-if", "grpo-or seed 1", "--iteration", "1", *arguments, "--to", str(tmp_path / "page")])
    printed = capsys.readouterr().out
    tables = printed.partition("What is set otherwise")[2].partition(str(tmp_path))[0]
    assert "The first step" in tables and max(map(len, tables.splitlines())) <= 80
    data = json.loads((tmp_path / "page" / "what_if.json").read_text())
    assert [rule["name"] for rule in data["rules"]] == ["recorded", "what if"]
    page = (tmp_path / "page" / "what_if.html").read_text()
    assert page.count("<article") == 32 and "32 of 32 episodes" in page


def test_what_was_pruned_is_said_and_made_again_only_if_asked(runs: dict[str, RecordedRun]) -> None:
    policy = runs["grpo-or"].artifacts.iterations[0]["policy"]
    default_store().prune(policy, ("optimizer/*",))
    found = tw.what_if("grpo-or seed 1", OTHERWISE, iteration=2, quiet=True).report
    assert "no step is taken" in found.notes[0] and found.cosines["what if"] is not None
    assert {"approximate_kl"} & {*(found.steps["what if"] or {})} == set()
    default_store().prune(policy, MODEL_FILES)
    found = tw.what_if("grpo-or seed 1", OTHERWISE, iteration=2, quiet=True).report
    assert "was pruned: there are no gradients" in found.notes[0] and found.steps == {}
    with pytest.raises(ConfigurationError, match=r"the policy that sampled it, .* which was pruned: give --remake"):
        tw.what_if("grpo-or seed 1", ["credit.estimator=optimal-token-baseline"], iteration=2, quiet=True)
    made = tw.what_if("grpo-or seed 1", OTHERWISE, iteration=2, remake=True, quiet=True).report
    assert made.notes == [] and (made.steps["what if"] or {})["approximate_kl"] > 0
    assert not default_store().pruned(policy)


@pytest.mark.parametrize(
    ("iteration", "settings", "message"),
    [
        (9, OTHERWISE, "--iteration must be from 1 to 2"),
        (1, [], "the settings must differ .* found none"),
        (1, ["credit.estimator=grpo"], "the settings must differ .* found the same values"),
        (1, ["rollout.temperature=0.5"], "not sampled again .* found rollout.temperature: run an experiment"),
        (1, ["optimization.adapter={rank: 2, alpha: 4}"], "found optimization.adapter"),
        (1, ["credit.estimator=gae"], "needs a critic's values, and grpo-or seed 1 learned without"),
        (1, ["selection.rule=mixed"], "samples further groups"),
        (1, ["credit.estimator=grpoo"], "credit.estimator must be one of"),
    ],
)
def test_what_a_recorded_rollout_cannot_answer_is_refused(
    runs: dict[str, RecordedRun], iteration: int, settings: list[str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        other_experiment(runs["grpo-or"], iteration, settings)
