"""Which columns of a score table are method, seed, task and score, and the table as results of methods.

Names are compared without case, and without what stands before the last `/` or `.`, and after a comma. A score is never
guessed: where several columns may be it, the refusal lists them. Of a table with a step, such as a training log, the
last step of each run counts. Several rows of a method, seed and task are replicas, and their mean counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from turnwise.errors import ConfigurationError
from turnwise.results.score_files import METHOD, SEED, TASK, method_and_seed
from turnwise.statistics import Results
from turnwise.suggestions import nearest

if TYPE_CHECKING:
    import pandas as pd

Role = Literal["method", "seed", "task", "score", "step"]
NAMES: Mapping[Role, Sequence[str]] = {
    "method": ("method", "algorithm", "algo", "variant", "agent", "model", "model_name", "exp_name", "group", METHOD),
    "seed": ("seed", "random_seed", "run_seed", "trial", SEED),
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
        """What was taken for what, in one sentence."""
        seed = f"seed: {self.seed}" if self.seed else "no seed, so that each method is one policy"
        task = f"task: {' and '.join(self.task)}" if self.task else "no task"
        step = f"; of each run its last {self.step}" if self.step else ""
        return f"Columns: method: {self.method}; {seed}; {task}; score: {self.score}{step}."


def with_run_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table, with method, seed and task read off the names of its runs where no column has the method."""
    names = [name for wanted in RUN_NAMES for name in table.columns if str(name).lower() == wanted]
    if not names or any(column != METHOD for column in _matching(table, NAMES["method"])):
        return table
    import pandas as pd

    parsed = [method_and_seed(str(value)) for value in table[names[0]]]
    added = {key: [row.get(key) for row in parsed] for key in (METHOD, SEED, TASK)}
    read = {key: pd.Series(values, table.index) for key, values in added.items() if None not in values}
    return table.assign(**read)


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
    taken = {method, seed, step, *tasks}
    return ScoreColumns(method, named.get("score") or _score(table, taken), seed, task, step)


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


def _score(table: pd.DataFrame, taken: set[str | None]) -> str:
    taken |= {*_matching(table, NAMES["seed"]), *_matching(table, NAMES["step"]), *_matching(table, tuple(NO_SCORES))}
    fitting = [column for column in _matching(table, NAMES["score"]) if not _has_text(table[column])] or [
        str(column) for column in table.columns if column not in taken and not _has_text(table[column])
    ]
    if len(fitting) != 1:
        tested_first = sorted(fitting, key=lambda column: not re.match("val|eval|test", column))
        what = f"{_listed(tested_first)} may be it" if fitting else f"found only {_listed(list(table.columns))}"
        raise ConfigurationError(f"one column must be the score; {what}: name it with --score", "TW-column-not-named")
    return fitting[0]


def _matching(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The columns with one of these names, by whole names before last parts, in the order of `names`."""
    whole = [(str(column).lower(), str(column)) for column in table.columns]
    last = [(re.split(r"[/.]", name)[-1].partition(",")[0], column) for name, column in whole]
    pairs = (pair for name in names for known in (whole, last) for pair in known if pair[0] == name)
    return list(dict.fromkeys(column for _, column in pairs))


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
        text = "nothing" if _is_missing(value) else repr(value)
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
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
