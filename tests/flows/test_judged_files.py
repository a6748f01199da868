"""`turnwise judge` and `tw.judge` on files, on MLflow's runs and on a table."""

from __future__ import annotations

import socket
from pathlib import Path

import pandas as pd
import pytest

import turnwise as tw
from flows.commands import cli
from turnwise.errors import ConfigurationError
from turnwise.reporting import judging
from turnwise.seeding import generator
from turnwise.statistics import Results, judge


def scores(seeds: int = 5) -> pd.DataFrame:
    """Three methods of which one is better, five seeds, twelve tasks."""
    random = generator(3, "judged scores")
    rows = [
        (method, seed, f"task {task}", float(level + shift + 0.05 * random.normal()))
        for method, level in (("ppo", 0.4), ("grpo", 0.42), ("mt-grpo", 0.8))
        for seed in range(seeds)
        for shift in (0.03 * random.normal(),)
        for task in range(12)
    ]
    return pd.DataFrame(rows, columns=["algo", "seed", "env_id", "success"])


def test_a_file_gets_an_ablations_verdicts_and_power(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scores.csv"
    scores().to_csv(path, index=False)
    assert cli.status_of(["judge", str(path), "--to", str(tmp_path / "judged")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mt-grpo beats grpo by 0.36 (0.29 to 0.43)" in said
    assert "Columns: algo as method, seed, env_id as task, success as score." in said
    assert "Read: 3 methods, 5 seeds each, 12 tasks each." in said
    assert "5 seeds cannot decide a difference below 0.1" in said and "between ppo and grpo." in said
    assert {"report.html", "report.json", "verdicts.csv", "figures"} <= {
        each.name for each in (tmp_path / "judged").iterdir()
    }
    page = (tmp_path / "judged" / "report.html").read_text()
    assert "interquartile mean</th>" in page, "and no column without a value"
    assert not any(each in page for each in ("normalised</th>", "gain over the warm start</th>", "Vertical lines"))
    read = tw.read_report(tmp_path / "judged")
    assert read.verdicts()["verdict"].tolist() == ["not distinguishable", "lower", "lower"]


def test_a_table_in_memory_is_judged_as_the_library_judges_its_numbers() -> None:
    table = scores()
    judged = tw.judge(table)
    results = {
        name: results_of(of_method)
        for name, of_method in ((name, table[table["algo"] == name]) for name in ("ppo", "grpo", "mt-grpo"))
    }
    assert judged.data.judgement == judge("success", results, share=bool(table["success"].between(0, 1).all()))
    assert "comparison-01-score" in judged.figures
    with pytest.raises(ConfigurationError, match="TW-unwritten-report"):
        judged.page  # noqa: B018


def test_rows_are_chosen_by_a_number_where_some_have_none() -> None:
    table = pd.DataFrame({"method": list("aab"), "step": [1, 2, 1], "score": [0.0, 1.0, 1.0]}, dtype=object)
    gap = pd.DataFrame([{"method": "a", "loss": 0.3}])
    judged = tw.judge(pd.concat([table.infer_objects(), gap]), only={"step": "1"}).data.judgement
    assert judged is not None and {each.name: each.mean.value for each in judged.standings} == {"a": 0.0, "b": 1.0}


def results_of(table: pd.DataFrame) -> Results:
    by_seed = table.groupby("seed")
    return Results({int(seed): dict(zip(each["env_id"], each["success"], strict=True)) for seed, each in by_seed})


def test_models_without_seeds_are_compared_over_tasks() -> None:
    table = pd.DataFrame(
        [(model, task, float(task % 4 > (model == "large"))) for model in ("small", "large") for task in range(40)],
        columns=["model", "doc_id", "acc"],
    )
    (pair,) = tw.judge(table).data.judgement.pairs  # type: ignore[union-attr]
    assert (pair.difference.over, pair.verdict) == ("tasks", "higher")


def test_tables_have_no_column_for_what_one_policy_per_method_cannot_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.csv"
    rows = [
        f"{model},{task},{float(task % 4 > (model == 'large'))}" for model in ("small", "large") for task in range(40)
    ]
    path.write_text("\n".join(["model,doc_id,acc", *rows]))
    assert cli.status_of(["judge", str(path), "--to", str(tmp_path / "judged")]) == 0
    said, page = capsys.readouterr().out, (tmp_path / "judged" / "report.html").read_text()
    assert "p (Holm)" in said and "p (Holm)</th>" in page
    for heading, in_page in (("effect", "effect"), ("P(better)", "P(better)"), ("quartile", "interquartile mean")):
        assert heading not in said and f"{in_page}</th>" not in page
    assert "Effect" not in said + page


def test_runs_of_mlflow_are_judged_by_their_parameters_and_last_metrics(tmp_path: Path) -> None:
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("bandit")
    for algorithm, level in (("ucb", 0.9), ("greedy", 0.3)):
        for seed in (1, 2, 3):
            run = client.create_run(experiment, run_name=f"{algorithm}-{seed}")
            client.log_param(run.info.run_id, "algorithm", algorithm)
            client.log_param(run.info.run_id, "seed", seed)
            client.log_metric(run.info.run_id, "eval/return", 0.0, step=0)
            client.log_metric(run.info.run_id, "eval/return", level + 0.01 * seed, step=1)
            client.set_terminated(run.info.run_id)
    judged = tw.judge([f"{uri}#bandit"])
    assert judged.data.description == (
        "Columns: params.algorithm as method, params.seed as seed, metrics.eval/return as score."
    )
    means = {row.name: row.cells["score"].value for row in judged.data.rows if row.cells["score"]}
    assert means == {"ucb": pytest.approx(0.92), "greedy": pytest.approx(0.32)}
    with pytest.raises(ConfigurationError, match=r"'bandits'.*TW-unknown-experiment"):
        tw.judge([f"{uri}#bandits"])


def test_a_wrong_value_is_named_by_its_row_in_a_table_of_which_only_some_rows_count() -> None:
    table = pd.DataFrame({"method": ["a", "b"], "kind": ["x", "y"], "seed": [1, 1], "score": [0.1, None]})
    with pytest.raises(ConfigurationError, match=r"^row 1, column 'score'"):
        tw.judge(table, only={"kind": "y"}, score="score")


def test_where_no_mlflow_listens_is_said_at_once() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="TW-tracking-unreachable"):
            tw.judge([f"{address}#bandit"])
        with pytest.raises(ConfigurationError, match="TW-tracking-unreachable"):
            tw.runs(tracking=address)


def test_the_password_of_an_mlflow_that_is_judged_is_not_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"method": ["a", "b"], "seed": [1, 1], "score": [0.1, 0.2]})
    monkeypatch.setattr(judging, "read_scores", lambda sources: table)
    judged = tw.judge(["https://me:secret@host:5000#bandit"])
    assert judged.data.lineage == [("host:5000#bandit", "MLflow")] and "secret" not in judged.data.to_json()


def test_a_wrong_column_or_file_ends_with_2_and_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("method,seed,score\na,1,0.5\na,2,x\nb,1,1\n")
    assert cli.status_of(["judge", str(path)]) == 2
    assert f"{path}, row 3, column 'score': must be a finite number; found 'x'" in capsys.readouterr().err
    assert cli.status_of(["judge", str(path), "--score", "scores"]) == 2
    assert "did you mean 'score'?" in capsys.readouterr().err
    assert cli.status_of(["judge", str(path), "--only", "seed"]) == 2
    assert "--only must be COLUMN=VALUE" in capsys.readouterr().err
