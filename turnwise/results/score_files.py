"""Score files of other systems, read as one table with a row per score and its place, and as results of methods.

    CSV, TSV             a row per score; ragged rows are refused
    Weights & Biases     a table export is such a CSV; a chart export (`Step`, `RUN - METRIC`, ...) is unpivoted
    JSON lines           a row per line, such as verl's `{"step": 7, "data": {...}}` and lm-evaluation-harness's samples
    JSON                 a list of rows; `trainer_state.json` of transformers and TRL; lm-evaluation-harness's results;
                         Inspect's logs, also as `.eval`

What a file does not name as a column is read off its path: the method and the seed of `grpo/seed-3/trainer_state.json`.
Sources: docs.wandb.ai "Export data", huggingface.co/docs/transformers `TrainerState`, verl `FileLogger`,
lm-evaluation-harness `docs/interface.md`, inspect.aisi.org.uk "Log Files".

Names are compared without case, and without what stands before the last `/` or `.`, and after a comma. A score is never
guessed: where several columns may be it, or the only one is of a kind whose lower values are better, the refusal lists
them. Of a table with a step, such as a training log, the last step of each run counts. Several rows of a method, seed
and task are replicas, and their mean counts.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turnwise.errors import ConfigurationError
from turnwise.statistics import Results
from turnwise.suggestions import nearest

if TYPE_CHECKING:
    import pandas as pd


METHOD, SEED, TASK = "method (of the path)", "seed (of the path)", "task (of the file)"
"""The columns that hold what was read off a file's path or its header, not off a row."""
PLACE = "place"
"""The name of the table's index: where a row stands, such as `scores.csv, row 3`."""
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's grades: correct, partly correct, incorrect, no answer."""
ENVELOPES = ("config", "summary", "metrics", "data", "scores")
"""Objects within a row whose entries are columns of their own."""
SEED_IN_NAME = re.compile(r"(?:^|(?<=[-_./ ]))(?:seed|run|trial|s)[-_=. ]?(\d+)(?=$|[-_./ ])", re.IGNORECASE)
RUN_OF_CLEANRL = re.compile(r"(?P<task>.+?)__(?P<method>.+?)__(?P<seed>\d+)__\d+")
SAMPLES_OF_HARNESS = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.\-]+")
FILE_OF_HARNESS = re.compile(rf"{SAMPLES_OF_HARNESS.pattern}|results_\d{{4}}-\d\d-\d\dT[\d.\-]+")
"""Its files have a task and a date in their names: the folder names the model."""
SAYS_NOTHING = re.compile(r"trainer_state|metrics|logs?|results?|progress|history|scores?|eval|checkpoint-\d+|\W*")
"""Names of files and folders that name no method."""

LONGEST_FIELD = 2**31 - 1
"""Characters of a CSV's field: completions in a table of samples are longer than what Python's csv reads at first."""

Row = dict[str, Any]


def read_score_files(paths: Sequence[Path]) -> pd.DataFrame:
    """All rows of the files, with the place of each as the index.

    Raises ConfigurationError, with file and row, for a file that is missing, empty, ragged or of an unknown format.
    """
    import pandas as pd

    roots = [path.resolve() for path in paths]
    places: list[str] = []
    rows: list[Row] = []
    for path, resolved in zip(paths, roots, strict=True):
        path_columns = _named_by_path(resolved, roots)
        count = len(rows)
        for place, row in _rows(path):
            places.append(f"{path}, {place}")
            rows.append({**path_columns, **row})
        if len(rows) == count:
            raise ConfigurationError(
                f"a score file must hold a row at least; {path} has none: leave it out", "TW-empty-file"
            )
    return pd.DataFrame(rows, index=pd.Index(places, name=PLACE))


def method_and_seed(name: str) -> Row:
    """What the name of a run says: its method, its seed, and its task, as far as they are in it.

    `Hopper-v4__ppo__1__1657000000` is CleanRL's: task, method, seed and time. Elsewhere the seed is a number after
    `seed`, `run`, `trial` or `s`, and the rest is the method.
    """
    if cleanrl := RUN_OF_CLEANRL.fullmatch(name):
        return {METHOD: cleanrl["method"], SEED: int(cleanrl["seed"]), TASK: cleanrl["task"]}
    numbers = SEED_IN_NAME.findall(name)
    method = "/".join(
        part.strip("-_. ") for part in SEED_IN_NAME.sub("", name).split("/") if not SAYS_NOTHING.fullmatch(part)
    )
    return {**({METHOD: method} if method else {}), **({SEED: int(numbers[-1])} if numbers else {})}


def _named_by_path(path: Path, all_paths: Sequence[Path]) -> Row:
    """What tells a file from the others by its path: only the parts in which paths differ say something."""
    common = set.intersection(*(set(each.with_suffix("").parts) for each in all_paths)) if len(all_paths) > 1 else set()
    parts = path.with_suffix("").parts if len(all_paths) > 1 else (path.stem,)
    differing = [part for part in parts if part not in common]
    telling = [part for part in differing if not FILE_OF_HARNESS.fullmatch(part)]
    return method_and_seed("/".join(telling or differing))


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of one file, each with its place in it."""
    if not path.is_file():
        raise ConfigurationError(f"a score file must exist; found no file {path}", "TW-missing-file")
    if path.suffix == ".eval":
        return _inspect_archive(path)
    if path.suffix in (".csv", ".tsv"):
        return _csv(path)
    if path.suffix == ".jsonl":
        return _json_lines(path)
    if path.suffix == ".json":
        return _json(path)
    raise ConfigurationError(
        f"a score file must end in .csv, .tsv, .jsonl, .json or .eval; found {path}", "TW-file-format"
    )


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(LONGEST_FIELD)
    separator, separators = ("\t", "tabs") if path.suffix == ".tsv" else (",", "commas")
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=separator)
    header = next(reader, [])
    if len(header) == 1 and re.search(r"[,;\t]", header[0]):
        raise ConfigurationError(
            f"{path}, row 1: columns must be separated by {separators}; found {header[0]!r}: save it as CSV with "
            "commas, or as .tsv with tabs",
            "TW-row-form",
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ConfigurationError(
            f"{path}, row 1: columns must have different names; found {twice} more than once", "TW-repeated-columns"
        )
    chart = [name for name in header[1:] if " - " in name and not name.endswith(("__MIN", "__MAX"))]
    is_chart = bool(chart) and header[0] in ("Step", "Relative Time (Wall)", "Relative Time (Process)", "Wall Time")
    for fields in reader:
        place = f"row {reader.line_num}"
        if not fields:
            continue
        if len(fields) != len(header):
            raise ConfigurationError(
                f"{path}, {place}: a row must have a field for each of the {len(header)} columns; found {len(fields)}",
                "TW-row-form",
            )
        row = dict(zip(header, fields, strict=True))
        if not is_chart:
            yield place, row
            continue
        for column in chart:
            run, _, metric = column.rpartition(" - ")
            if row[column]:
                yield f"{place}, column {column!r}", {"Step": row[header[0]], metric: row[column], "run": run}


def _read_text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}, row {row}: text must be UTF-8; found the byte "
            f"{content[error.start]:#04x}: save the file as UTF-8",
            "TW-file-format",
        ) from None


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    samples = SAMPLES_OF_HARNESS.fullmatch(path.stem)
    # A text in JSON may hold what `splitlines` takes for the end of a line, such as U+2028.
    for number, line in enumerate(io.StringIO(_read_text(path), newline=None), 1):
        if not line.strip():
            continue
        place = f"row {number}"
        try:
            row = json.loads(line.rstrip("\n"))
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"{path}, {place}, column {error.colno}: no JSON: {error.msg}", "TW-file-format"
            ) from error
        yield place, {**({TASK: samples["task"]} if samples else {}), **_flat(row, f"{path}, {place}")}


def _json(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        content = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{path}, row {error.lineno}, column {error.colno}: no JSON: {error.msg}", "TW-file-format"
        ) from error
    if isinstance(content, dict) and "eval" in content and "samples" in content:
        return _inspect(content["eval"], content["samples"] or [])
    results = content.get("results") if isinstance(content, dict) else None
    if isinstance(results, dict) and all(isinstance(metrics, dict) for metrics in results.values()):
        return _harness_results(content)
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise ConfigurationError(
            f"a JSON score file must be a list of rows, a trainer_state.json with its log_history, results of "
            f"lm-evaluation-harness or a log of Inspect; found none of these in {path}",
            "TW-file-format",
        )
    return ((f"entry {number}", _flat(row, f"{path}, entry {number}")) for number, row in enumerate(rows, 1))


def _harness_results(content: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """One row per task of lm-evaluation-harness's results; a group repeats its subtasks and is left out."""
    model = content.get("model_name") or content.get("config", {}).get("model_args")
    groups = {name for name, subtasks in content.get("group_subtasks", {}).items() if subtasks}
    for task, metrics in content["results"].items():
        if task not in groups:
            scores = {name: value for name, value in metrics.items() if "_stderr" not in name and name != "alias"}
            yield f"task {task}", {**({METHOD: model} if model else {}), TASK: task, **scores}


def _inspect(header: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Row]]:
    for sample in samples:
        row: Row = {METHOD: header["model"], TASK: header["task"], "sample": sample["id"], "epoch": sample["epoch"]}
        for scorer, score in (sample.get("scores") or {}).items():
            values = score["value"] if isinstance(score["value"], Mapping) else {"": score["value"]}
            for name, value in values.items():
                row[f"{scorer}.{name}".rstrip(".")] = GRADES.get(value, value) if isinstance(value, str) else value
        yield f"sample {sample['id']}, epoch {sample['epoch']}", row


def _inspect_archive(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))["eval"]
            names = sorted(name for name in archive.namelist() if name.startswith("samples/"))
            yield from _inspect(header, (json.loads(archive.read(name)) for name in names))
    except (zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        raise ConfigurationError(
            f"{path} must be a finished log of Inspect that Python's zipfile reads; found: {error}: write it as JSON "
            "with `inspect log convert --to json`",
            "TW-file-format",
        ) from error


def _flat(row: object, place: str) -> Row:
    """A row of JSON as columns: the entries of `ENVELOPES` too; other objects and lists are no scores."""
    if not isinstance(row, dict):
        raise ConfigurationError(
            f"{place}: a row must be an object with named values; found {str(row)[:40]}", "TW-row-form"
        )
    inner = itertools.chain.from_iterable(row[name].items() for name in ENVELOPES if isinstance(row.get(name), dict))
    return {name: value for name, value in [*row.items(), *inner] if not isinstance(value, dict | list)}


Role = Literal["method", "seed", "task", "score", "step"]
NAMES: Mapping[Role, Sequence[str]] = {
    "method": ("method", "algorithm", "algo", "variant", "agent", "model", "model_name", "exp_name", "group", METHOD),
    "seed": ("seed", "random_seed", "run_seed", "trial", SEED, "run", "replicate", "repetition"),
    "task": ("task", "task_id", "env", "env_id", "environment", "game", "doc_id", "sample", "sample_id", "problem_id",
             "question_id", "prompt_id", "instance_id", TASK),
    "score": ("score", "final_score", "success", "success_rate", "exact_match", "accuracy", "acc", "correct", "reward",
              "mean_reward", "eval_reward", "return", "mean_return", "episodic_return", "eval_return", "avg_return",
              "pass@1"),
    "step": ("step", "_step", "global_step", "iteration", "training_iteration", "timestep", "timesteps", "total_steps"),
}  # fmt: skip
"""By role, the names that are taken for it. All but the score are in order of preference."""
NO_SCORES = frozenset(
    ("", "epoch", "index", "time", "timestamp", "_timestamp", "_runtime", "runtime", "wall_time", "created", "duration")
)
"""Names of numbers that are no scores."""
LOWER_IS_BETTER = re.compile(r"(^|_)(loss|nll|error|mse|rmse|mae|wer|cer|perplexity|ppl|regret|latency|cost)(_|$)")
"""Names of numbers that are no scores unless somebody says so: a higher one is a worse one."""
MIXING = ("filter", "split", "metric", "metric_name")
"""Columns with several values only where a table has several kinds of score."""
RUN_NAMES = ("name", "run_name", "run", "tags.mlflow.runname")
"""Columns whose values name a run: method and seed are read off them where no column has these."""
ONE_SEED = 0
"""The seed of every row where no column or path has one: each method is one policy."""


@dataclass(frozen=True)
class ScoreColumns:
    """The columns of a score table by their roles."""

    method: str
    score: str
    seed: str | None = None
    """None: each method is one policy, and is compared with others over tasks."""
    task: tuple[str, ...] = ()
    """The columns that name a task together; empty: one task."""
    step: str | None = None

    def sentence(self) -> str:
        """What was taken for what, such as `Columns: algo as method, seed, success as score.`"""
        roles = [("method", self.method), ("seed", self.seed), ("task", " and ".join(self.task)), ("score", self.score)]
        columns = [
            column if column.partition(" (")[0] == role else f"{column} as {role}" for role, column in roles if column
        ]
        alone = "" if self.seed else " No column is a seed: each method is one policy."
        step = f" Of each run the last {self.step} counts." if self.step else ""
        return f"Columns: {', '.join(columns)}.{alone}{step}"


def with_run_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table, with method, seed and task read off the names of its runs where no column has the method."""
    names = [name for run_name in RUN_NAMES for name in table.columns if str(name).lower() == run_name]
    if not names or any(column != METHOD for column in _matching(table, NAMES["method"])):
        return table
    import pandas as pd

    parsed = [method_and_seed(str(value)) for value in table[names[0]]]
    parts = {key: [row.get(key) for row in parsed] for key in (METHOD, SEED, TASK)}
    columns = {key: pd.Series(values, table.index) for key, values in parts.items() if None not in values}
    return table.assign(**columns)


def detect_columns(table: pd.DataFrame, named: Mapping[Role, str | None]) -> ScoreColumns:
    """The columns by role: those that `named` has, and the others by their names.

    Raises ConfigurationError for a named column that is not there, and for a method or a score that is not clear.
    """
    for role, column in named.items():
        if column is not None and column not in table.columns:
            raise ConfigurationError(
                f"--{role} must name a column; {column!r} is none: {nearest(column, table.columns)}",
                "TW-unknown-column",
            )

    def first(role: Role) -> str | None:
        matching = _matching(table, NAMES[role])
        if role == "seed":
            matching = [column for column in matching if not _has_text(table[column])]
        varying = (column for column in matching if table[column].nunique() > 1)
        return named.get(role) or next(varying, None) or next(iter(matching), None)

    method, seed, step = first("method"), first("seed"), first("step")
    if method is None:
        raise ConfigurationError(
            f"a column must name the method of each row; found only {_listed(list(table.columns))}: name it: --method",
            "TW-column-not-named",
        )
    for column in _matching(table, MIXING):
        if table[column].nunique() > 1:
            kinds = [str(each) for each in table[column].dropna().unique()]
            raise ConfigurationError(
                f"scores must be of one kind; the column {column!r} has {_listed(kinds)}: say "
                f"--only {column}={kinds[0]}",
                "TW-several-kinds",
            )
    tasks = _matching(table, NAMES["task"])
    task = (named["task"],) if named.get("task") else (*([TASK] if TASK in tasks else []), *tasks[:1])
    task = tuple(dict.fromkeys(str(each) for each in task))
    other_columns = {method, seed, step, *tasks}
    return ScoreColumns(method, named.get("score") or _score(table, other_columns), seed, task, step)


def results_of(table: pd.DataFrame, columns: ScoreColumns, anyway: bool = False) -> dict[str, Results]:
    """The results by method, in the order in which methods first stand in the table.

    Raises ConfigurationError, with row and column, for a score that is no finite number, a method or task that is
    missing and a seed that is no whole number; and where runs lack tasks that others have, unless `anyway`, with which
    methods are compared on the tasks that they share.
    """
    scores: dict[tuple[str, int], dict[str, tuple[float, list[float]]]] = {}
    for place, row in zip(table.index, table.to_dict("records"), strict=True):
        value = row[columns.score]
        if columns.step is not None and _is_missing(value):
            continue  # a log's row of another kind: training and evaluation share a file
        score = _number(value, place, columns.score)
        step = 0.0 if columns.step is None else _number(row[columns.step], place, columns.step)
        run = _text(row[columns.method], place, columns.method), _seed(row, place, columns)
        task = " ".join(_text(row[each], place, each) for each in columns.task) or "all"
        last, replicas = scores.setdefault(run, {}).get(task, (-math.inf, []))
        if step > last:
            scores[run][task] = (step, [score])
        elif step == last:
            replicas.append(score)
    if not scores:
        raise ConfigurationError(
            f"scores must be numbers; the column {columns.score!r} has none: name another", "TW-missing-scores"
        )
    if not anyway:
        _require_all_tasks(scores)
    by_method: dict[str, dict[int, dict[str, float]]] = {}
    for (method, seed), tasks in sorted(scores.items(), key=lambda each: each[0][1]):
        by_method.setdefault(method, {})[seed] = {task: sum(each) / len(each) for task, (_, each) in tasks.items()}
    return {method: Results(by_method[method]) for method in dict.fromkeys(method for method, _ in scores)}


def ends_apart(table: pd.DataFrame, columns: ScoreColumns) -> list[str]:
    """A sentence on runs whose last steps differ, since a longer run may be the better for its length; else none."""
    if columns.step is None:
        return []
    rows = table[[not _is_missing(value) for value in table[columns.score]]]
    run = [rows[columns.method], *([rows[columns.seed]] if columns.seed else [])]
    ends = rows[columns.step].astype(float).groupby(run).max()
    if ends.nunique() == 1:
        return []
    by_method = ends.groupby(level=0, sort=False).agg(["min", "max"])
    method_ends = [
        f"{method} at {low:g}{'' if low == high else f' to {high:g}'}" for method, low, high in by_method.itertuples()
    ]
    return [
        f"Runs end at different steps, {', '.join(method_ends)}, and a longer one may be better for its length: "
        f"--only {columns.step}=N compares them at one step."
    ]


def _score(table: pd.DataFrame, other_columns: set[str | None]) -> str:
    other_columns |= {
        *_matching(table, NAMES["seed"]),
        *_matching(table, NAMES["step"]),
        *_matching(table, tuple(NO_SCORES)),
    }
    score_columns = _matching(table, NAMES["score"])
    numbers = [
        column for column in map(str, table.columns) if column not in other_columns and not _has_text(table[column])
    ]
    scores = [column for column in score_columns if not _has_text(table[column])] or numbers
    fitting = [column for column in scores if not LOWER_IS_BETTER.search(_last_part(column.lower()))]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        tested_first = sorted(fitting, key=lambda column: not re.match("val|eval|test", column))
        what = f"{_listed(tested_first)} may be it: name it with --score"
    elif scores:
        what = f"lower values of {_listed(scores)} are better: write their negatives, or name a column with --score"
    elif score_columns:
        values = table[score_columns[0]].items()
        place, value = next(each for each in values if _is_missing(each[1]) or _as_number(each[1]) is None)
        what = f"{score_columns[0]!r} may be it, but {place}, has {value!r}: write numbers"
    else:
        what = f"found only {_listed(list(table.columns))}: name it with --score"
    raise ConfigurationError(f"one column must be the score; {what}", "TW-column-not-named")


def _matching(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The columns with one of these names, by whole names before last parts, in the order of `names`."""
    whole = [(str(column).lower(), str(column)) for column in table.columns]
    last = [(_last_part(name), column) for name, column in whole]
    pairs = (pair for name in names for candidates in (whole, last) for pair in candidates if pair[0] == name)
    return list(dict.fromkeys(column for _, column in pairs))


def _last_part(name: str) -> str:
    """What stands after the last `/` or `.`, and before a comma: `acc` of `gsm8k/acc,none`."""
    return re.split(r"[/.]", name)[-1].partition(",")[0]


def _has_text(values: pd.Series) -> bool:
    numbers = [_as_number(value) for value in values if not _is_missing(value)]
    return sum(number is None for number in numbers) * 2 >= len(numbers)


def _require_all_tasks(scores: Mapping[tuple[str, int], Mapping[str, object]]) -> None:
    every = dict.fromkeys(task for tasks in scores.values() for task in tasks)
    for (method, seed), tasks in scores.items():
        if missing := [task for task in every if task not in tasks]:
            raise ConfigurationError(
                f"every run must have a score on each of the {len(every)} tasks; {method}, seed {seed}, has none on "
                f"{_listed(missing)}: complete it, or say --anyway to compare on the tasks that runs share",
                "TW-missing-scores",
            )


def _seed(row: Mapping[Any, Any], place: object, columns: ScoreColumns) -> int:
    if columns.seed is None:
        return ONE_SEED
    value = _number(row[columns.seed], place, columns.seed)
    if value != int(value):
        raise ConfigurationError(
            f"{place}, column {columns.seed!r}: a seed must be a whole number; found {value}", "TW-score-value"
        )
    return int(value)


def _number(value: object, place: object, column: str) -> float:
    number = _as_number(value)
    if number is None or not math.isfinite(number):
        text = "nothing: keep the rows that have it by --only COLUMN=VALUE" if _is_missing(value) else repr(value)
        raise ConfigurationError(f"{place}, column {column!r}: must be a finite number; found {text}", "TW-score-value")
    return number


def _as_number(value: object) -> float | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _text(value: object, place: object, column: str) -> str:
    if _is_missing(value):
        raise ConfigurationError(f"{place}, column {column!r}: must have a value; found nothing", "TW-score-value")
    return str(value).strip()


def _is_missing(value: object) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _listed(names: Sequence[object], most: int = 8) -> str:
    listing = ", ".join(repr(str(name)) for name in list(names)[:most])
    return f"{listing} and {len(names) - most} more" if len(names) > most else listing
