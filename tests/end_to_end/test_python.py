"""`import turnwise as tw`: what the command line does, from Python, and what was run as tables, models and figures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from comparison import Computed
from project_copy import ROOT, TINY, copy_home

import turnwise as tw
from turnwise.data.trajectory_files import read_credit

pytestmark = pytest.mark.chain


@pytest.fixture
def recorded(tiny_ablation: Computed, monkeypatch: pytest.MonkeyPatch) -> tw.RecordedRuns:
    """The runs of the tiny ablation, in its home, which nothing here changes."""
    monkeypatch.setenv("TURNWISE_HOME", str(tiny_ablation.home))
    return tw.runs("tiny", tracking=f"sqlite:///{tiny_ablation.home / 'mlflow.db'}")


@pytest.fixture
def project(tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose home has the tiny ablation."""
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    copy_home(tiny_ablation.home, tmp_path / ".turnwise")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("TURNWISE_HOME", raising=False)
    return tmp_path


def test_an_ablation_that_is_recorded_is_found_reported_and_followed(project: Path, tiny_ablation: Computed) -> None:
    followed: list[tw.StageCall] = []
    done = tw.ablation(tw.load(TINY), follow=followed.append, quiet=True)
    assert (done.result.computed, done.digest) == (0, tiny_ablation.digest)
    assert len(followed) == done.result.found and all(call.cached for call in followed), "each once"
    assert done.report.page == project / "results" / "tiny" / "report.html" and done.report.page.is_file()
    assert [run.name for run in done] == ["grpo-or seed 1", "mt-grpo seed 1"]
    assert repr(done).startswith("<ablation tiny: 0 stages computed, ")
    again = tw.read_report(done.report.folder)
    assert again.table().equals(done.report.table())


def test_the_report_is_a_table_verdicts_and_figures_that_a_notebook_shows(project: Path) -> None:
    report = tw.ablation(tw.load(TINY), quiet=True).report
    table = report.table()
    success = table[(table["row"] == "mt-grpo") & (table["column"] == "success")]
    assert success["value"].item() == pytest.approx(
        next(row for row in report.data.rows if row.name == "mt-grpo").cells["success"].value
    )
    assert set(report.verdicts()["first"]) == {"grpo-or", "mt-grpo"}
    assert "<th>mt-grpo</th>" in report._repr_html_()
    name, figure = next(iter(report.figures.items()))
    assert name == figure.name and figure._repr_png_().startswith(b"\x89PNG")


def test_results_and_curves_are_the_metrics_that_mlflow_has(recorded: tw.RecordedRuns) -> None:
    results, curves = recorded.results(), recorded.curves()
    assert set(results["run"]) == {"grpo-or seed 1", "mt-grpo seed 1", "warm start", "random", "oracle"}
    for run in recorded:
        of_run = results[results["run"] == run.name].iloc[0]
        last = curves[curves["run"] == run.name].ffill().iloc[-1]
        checked = 0
        for name, value in run.metrics.items():
            if name in of_run.index and name.startswith("test/"):
                assert of_run[name] == pytest.approx(value), name
                checked += 1
            elif name in last.index:
                assert last[name] == pytest.approx(value), name
                checked += 1
        assert checked > 60
    assert list(curves[curves["run"] == "mt-grpo seed 1"]["iteration"]) == [0, 1, 2]


def test_turns_have_the_advantages_that_the_update_used(recorded: tw.RecordedRuns) -> None:
    run = recorded["mt-grpo"]
    turns = run.turns(iterations=(2, 2))
    advantages = read_credit(run.one.artifacts.iterations[1]["credit"])
    trained = turns[turns["advantage"].notna()]
    found = {key: list(rows["advantage"]) for key, rows in trained.groupby(["group", "replica"], sort=True)}
    assert list(found.values()) == [advantages[index].turns for index in sorted(advantages)]
    assert set(turns["iteration"]) == {2} and set(turns["split"]) == {"training"}
    assert len(run.trajectories(iterations=(2, 2))) == 8 * 4


def test_trajectories_add_up_to_the_success_that_was_reported(recorded: tw.RecordedRuns) -> None:
    test = recorded.trajectories("test", mode="sampled", baselines=True)
    results = recorded.results().set_index("run")["test/sampled/success"]
    found = test.groupby("run")["success"].mean()
    assert {name: pytest.approx(value) for name, value in found.items()} == dict(results)
    assert (test["return"] <= 1.2).all() and "reward/goal" in test


def test_a_policy_is_a_transformers_model_with_the_stored_weights(recorded: tw.RecordedRuns, tmp_path: Path) -> None:
    opened = recorded["mt-grpo seed 1"].policy()
    tokens = opened.tokenizer("x", return_tensors="pt").input_ids
    assert torch.isfinite(opened.model(tokens).logits).all()
    assert opened.reference == recorded["mt-grpo seed 1"].one.artifacts.final_policy
    with pytest.raises(tw.ConfigurationError, match="RUN must name one run; this names 2"):
        recorded.policy()
    with pytest.raises(tw.ConfigurationError, match=r"a run must be one of .* did you mean 'mt-grpo seed 1'"):
        recorded["mt-grpo sed 1"]
