"""Score files in the shapes that other systems write; each sample is typed after the source that its test names."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from turnwise.errors import ConfigurationError
from turnwise.results.score_files import (
    METHOD,
    SEED,
    TASK,
    detect_columns,
    ends_apart,
    method_and_seed,
    read_score_files,
    results_of,
    with_run_names,
)
from turnwise.statistics import Results


def read(*paths: Path, score: str | None = None, **more: bool) -> dict[str, Results]:
    table = with_run_names(read_score_files(paths))
    return results_of(table, detect_columns(table, {"score": score}), **more)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_csv_of_final_scores(tmp_path: Path) -> None:
    # The columns and first rows of mean_rewards_data.csv in github.com/vwxyzjn/cleanrl (commit 1ec1ecd).
    lines = [
        "algorithm,environment,seed,run_dir,mean_reward",
        "c51,Acrobot-v1,1,Acrobot-v1__c51__1__1756494412,-497.052736",
        "c51,CartPole-v1,1,CartPole-v1__c51__1__1756494413,189.780775",
        "dqn,Acrobot-v1,1,Acrobot-v1__dqn__1__1756494412,-100",
        "dqn,CartPole-v1,1,CartPole-v1__dqn__1__1756494413,200",
    ]
    found = read(write(tmp_path / "scores.csv", "\n".join(lines)))
    assert {name: dict(each.runs) for name, each in found.items()} == {
        "c51": {1: {"Acrobot-v1": -497.052736, "CartPole-v1": 189.780775}},
        "dqn": {1: {"Acrobot-v1": -100.0, "CartPole-v1": 200.0}},
    }


def test_a_chart_that_weights_and_biases_exported(tmp_path: Path) -> None:
    # `"Step","<run> - <metric>","<run> - <metric>__MIN","<run> - <metric>__MAX"`; empty where a run has no value.
    runs = ("grpo-seed1", "grpo-seed2", "ppo-seed1")
    columns = [f"{run} - eval/success{end}" for run in runs for end in ("", "__MIN", "__MAX")]
    rows = [["0", *["0.1"] * 9], ["10", *["0.5", "0.4", "0.6"] * 2, "", "", ""]]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [["Step", *columns], *rows])
    found = read(write(tmp_path / "wandb_export.csv", text))
    assert {name: each.means for name, each in found.items()} == {"grpo": {1: 0.5, 2: 0.5}, "ppo": {1: 0.1}}


def test_the_state_of_a_trainer_of_transformers_or_trl_in_a_folder_for_each_run(tmp_path: Path) -> None:
    for method, seed, reward in (("grpo", 1, 0.5), ("grpo", 2, 0.6), ("rloo", 1, 0.7), ("rloo", 2, 0.8)):
        history = [
            {"epoch": 0.1, "step": 10, "loss": 0.02, "learning_rate": 1e-6, "reward": 0.2, "reward_std": 0.3},
            {"epoch": 0.2, "step": 20, "loss": 0.01, "learning_rate": 0.0, "reward": reward, "reward_std": 0.1},
            {"epoch": 0.2, "step": 20, "train_runtime": 93.1, "train_loss": 0.015},
        ]
        path = tmp_path / "runs" / method / f"seed-{seed}" / "checkpoint-20" / "trainer_state.json"
        write(path, json.dumps({"global_step": 20, "log_history": history}))
    found = read(*sorted(tmp_path.rglob("trainer_state.json")))
    assert {name: each.means for name, each in found.items()} == {"grpo": {1: 0.5, 2: 0.6}, "rloo": {1: 0.7, 2: 0.8}}


def test_verls_log_needs_the_name_of_the_score_and_lists_validation_first(tmp_path: Path) -> None:
    # verl's FileLogger writes {"step": ..., "data": {...}}, one line per step.
    def log(last: float) -> str:
        data = {"actor/pg_loss": 0.1, "critic/score/mean": 0.2, "val-core/gsm8k/reward/mean@1": 0.0}
        return "\n".join(
            json.dumps({"step": step, "data": {**data, "val-core/gsm8k/reward/mean@1": value}})
            for step, value in ((1, 0.1), (2, last))
        )

    paths = [write(tmp_path / f"{name}_seed{seed}.jsonl", log(0.5)) for name in ("grpo", "gae") for seed in (1, 2)]
    with pytest.raises(
        ConfigurationError, match=r"'val-core/gsm8k/reward/mean@1'.*'critic/score/mean'.*--score.*TW-column-not-named"
    ):
        read(*paths)
    found = read(*paths, score="val-core/gsm8k/reward/mean@1")
    assert {name: each.means for name, each in found.items()} == {"grpo": {1: 0.5, 2: 0.5}, "gae": {1: 0.5, 2: 0.5}}


def test_samples_of_lm_evaluation_harness_are_of_one_filter(tmp_path: Path) -> None:
    # `--log_samples` writes <output>/<model>/samples_<task>_<date>.jsonl, a line for each document and filter.
    for model, correct in (("org__small", (0.0, 1.0)), ("org__large", (1.0, 1.0))):
        lines = [
            {"doc_id": place, "doc": {"question": "?"}, "target": "18", "resps": [["18"]], "filter": name,
             "metrics": ["exact_match"], "doc_hash": f"{place:x}", "exact_match": value}
            for name in ("strict-match", "flexible-extract") for place, value in enumerate(correct)
        ]  # fmt: skip
        path = tmp_path / model / "samples_gsm8k_2026-04-15T13-55-33.588896.jsonl"
        write(path, "\n".join(map(json.dumps, lines)))
    table = read_score_files(sorted(tmp_path.rglob("*.jsonl")))
    with pytest.raises(
        ConfigurationError, match=r"'strict-match'.*'flexible-extract'.*filter=strict-match.*TW-several-kinds"
    ):
        detect_columns(table, {})
    table = table[table["filter"] == "strict-match"]
    columns = detect_columns(table, {})
    assert (columns.seed, columns.task, columns.score) == (None, (TASK, "doc_id"), "exact_match")
    assert results_of(table, columns)["org__small"].runs == {0: {"gsm8k 0": 0.0, "gsm8k 1": 1.0}}


def test_the_samples_of_a_model_of_lm_evaluation_harness_are_one_method_whatever_their_tasks_and_dates(
    tmp_path: Path,
) -> None:
    for hour, (model, task) in enumerate((model, task) for model in ("small", "large") for task in ("arc", "gsm8k")):
        name = f"samples_{task}_2026-04-15T1{hour}-55-33.588896.jsonl"
        write(tmp_path / f"org__{model}" / name, json.dumps({"doc_id": 0, "filter": "none", "acc": hour / 4}))
    found = read(*sorted(tmp_path.rglob("*.jsonl")))
    assert {name: each.runs for name, each in found.items()} == {
        "org__large": {0: {"arc 0": 0.5, "gsm8k 0": 0.75}},
        "org__small": {0: {"arc 0": 0.0, "gsm8k 0": 0.25}},
    }


def test_a_row_without_the_score_is_refused_with_how_to_leave_it_out(tmp_path: Path) -> None:
    content = {"model_name": "small", "results": {"arc": {"acc,none": 0.5}, "gsm8k": {"exact_match,strict": 0.2}}}
    file = write(tmp_path / "results.json", json.dumps(content))
    with pytest.raises(ConfigurationError, match=r"task gsm8k, column 'acc,none'.*nothing.*--only.*TW-score-value"):
        read(file, score="acc,none")


def test_results_of_lm_evaluation_harness_without_their_groups(tmp_path: Path) -> None:
    for model in ("small", "large"):
        metrics = {"alias": "arc", "acc,none": 0.5, "acc_stderr,none": 0.01}
        content = {
            "results": {"arc_easy": metrics, "arc_challenge": metrics, "arc": metrics},
            "group_subtasks": {"arc": ["arc_easy", "arc_challenge"], "arc_easy": []},
            "model_name": model,
        }
        write(tmp_path / f"results_{model}.json", json.dumps(content))
    found = read(*sorted(tmp_path.glob("*.json")))
    assert found["small"].runs == {0: {"arc_easy": 0.5, "arc_challenge": 0.5}}


@pytest.mark.parametrize("suffix", [".json", ".eval"])
def test_a_log_of_inspect(tmp_path: Path, suffix: str) -> None:
    # As tests/log/test_eval_log/log_formats.json in github.com/UKGovernmentBEIS/inspect_ai, without what is not read.
    header = {"task": "popularity", "model": "ollama/llama3.1", "config": {"epochs": 2}}
    samples = [
        {"id": sample, "epoch": epoch, "scores": {"match": {"value": grade, "answer": "No"}}}
        for sample, epoch, grade in ((1, 1, "C"), (1, 2, "I"), (2, 1, "P"), (2, 2, "N"))
    ]
    path = tmp_path / f"log{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps({"version": 2, "eval": header, "samples": samples}))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", json.dumps({"version": 2, "eval": header}))
            for sample in samples:
                archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    assert read(path)["ollama/llama3.1"].runs == {0: {"popularity 1": 0.5, "popularity 2": 0.25}}


def test_what_a_runs_name_says() -> None:
    assert method_and_seed("Hopper-v4__ppo__3__1657000000") == {METHOD: "ppo", SEED: 3, TASK: "Hopper-v4"}
    assert method_and_seed("mt-grpo-seed_2") == {METHOD: "mt-grpo", SEED: 2}
    assert method_and_seed("grpo/s3/metrics") == {METHOD: "grpo", SEED: 3}
    assert method_and_seed("trainer_state") == {}


def test_runs_of_other_lengths_are_told(tmp_path: Path) -> None:
    text = "method,seed,step,score\n" + "".join(
        f"{method},{seed},{step},1\n"
        for method, seed, steps in (("a", 1, 2), ("a", 2, 2), ("b", 1, 2), ("b", 2, 4))
        for step in range(1, steps + 1)
    )
    table = read_score_files([write(tmp_path / "log.csv", text + "b,2,5,\n")])
    columns = detect_columns(table, {})
    [sentence] = ends_apart(table, columns)
    assert "a at 2, b at 2 to 4" in sentence and "--only step=N" in sentence
    assert ends_apart(table[table["step"] == "2"], columns) == []
    [of_policies] = ends_apart(table, replace(columns, seed=None))
    assert "a at 2, b at 4" in of_policies


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method,seed,score\na,1,0.5\na,2\n", r"\b3\b.*\b2\b.*TW-row-form"),
        ("method,seed,score\na,1,0.5\na,2,n/a\nb,1,1\n", "row 3.*'score'.*'n/a'.*TW-score-value"),
        ("method,seed,score\na,1,0.5\na,2,\n", "row 3.*'score'.*TW-score-value"),
        ("method,seed,score\na,1.5,0.5\n", r"row 2.*1\.5.*TW-score-value"),
        ("method,seed,score\n,1,0.5\n", "row 2.*'method'.*TW-score-value"),
        ("method;seed;score\na;1;0,5\n", "row 1.*commas.*'method;seed;score'.*TW-row-form"),
        ("method,method,score\na,a,1\n", "'method'.*TW-repeated-columns"),
        ("method,seed,score\n", "TW-empty-file"),
        ("method,seed,success,reward\na,1,1,2\n", "'success'.*'reward'.*TW-column-not-named"),
        ("method,seed,val_loss\na,1,1\n", "lower.*'val_loss'.*TW-column-not-named"),
        ('method,seed,"wikitext/word_perplexity,none"\na,1,9\n', "lower.*'wikitext/word_perplexity,none'"),
        ("method,seed,accuracy\na,1,50%\n", "'accuracy'.*row 2.*'50%'.*TW-column-not-named"),
        ("method,seed,accuracy\na,1,\n", "'accuracy'.*row 2.*TW-column-not-named"),
        ("method,seed,task,score\na,1,x,1\na,1,y,1\nb,1,x,1\n", r"\b1\b.*'y'.*TW-missing-scores"),
    ],
)  # fmt: skip
def test_a_wrong_or_ragged_file_is_refused_with_its_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(write(tmp_path / "scores.csv", text))


@pytest.mark.parametrize("name", ["scores.csv", "scores.jsonl"])
def test_a_file_that_is_not_utf_8_is_refused_with_its_row(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'method,score\n"a",1\n"\xe9",2\n')
    with pytest.raises(ConfigurationError, match=r"row 3: .*UTF-8.*0xe9.*TW-file-format"):
        read(tmp_path / name)


def test_the_number_of_a_run_is_its_seed_where_no_column_is_called_so(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.csv", "algo,run,final_return\na,0,1\na,1,2\nb,0,3\n")
    assert read(path)["a"].runs == {0: {"all": 1.0}, 1: {"all": 2.0}}


def test_broken_json_and_an_unknown_format_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\b2\b.*\b9\b.*TW-file-format"):
        read(write(tmp_path / "log.jsonl", '{"score": 1}\n{"score"\n'))
    with pytest.raises(ConfigurationError, match=r"\b1\b.*\b3\b.*TW-row-form"):
        read(write(tmp_path / "numbers.jsonl", "3\n"))
    with pytest.raises(ConfigurationError, match="TW-file-format"):
        read(write(tmp_path / "scores.xlsx", "x"))
    with pytest.raises(ConfigurationError, match="TW-missing-file"):
        read(tmp_path / "none.csv")


def test_runs_that_lack_tasks_are_compared_where_that_is_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.csv", "method,seed,task,score\na,1,x,1\na,1,y,1\nb,1,x,1\n")
    assert read(path, anyway=True)["b"].runs == {1: {"x": 1.0}}


def test_a_line_of_json_ends_at_its_line_break_alone(tmp_path: Path) -> None:
    path = write(
        tmp_path / "log.jsonl",
        '{"method": "a\u2028b", "seed": 1, "score": 1}\r\n{"method": "c", "seed": 1, "score": 0}\n',
    )
    assert list(read(path)) == ["a\u2028b", "c"]


def test_a_field_of_a_csv_may_be_as_long_as_a_completion(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.csv", f"method,seed,completion,score\na,1,{'word ' * 40_000},1\n")
    assert read(path)["a"].runs == {1: {"all": 1.0}}


def test_results_that_are_not_the_harnesss_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a list of rows.*TW-file-format"):
        read(write(tmp_path / "scores.json", '{"results": {"accuracy": 0.5}}'))
