"""Judges results of any system: files, MLflow's runs, or a table in memory.

What a comparison leaves open has a sentence that says below which difference so many runs decide nothing: the
difference that a test at the first step of Holm's correction would find with a probability of 80 %, by the spread that
these runs show.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ConfigurationError
from turnwise.reporting.ablation_report import AblationReport
from turnwise.results.report_data import SHARE, ReportColumn, ReportData, Row
from turnwise.results.score_files import (
    PLACE,
    Role,
    detect_columns,
    ends_apart,
    read_score_files,
    results_of,
    with_run_names,
)
from turnwise.statistics import Comparison, Interval, Judgement, Results
from turnwise.statistics import judge as judge_results
from turnwise.statistics.verdict import smallest_decidable
from turnwise.store.digests import sha256_of
from turnwise.suggestions import nearest

if TYPE_CHECKING:
    import pandas as pd


def judge(
    scores: pd.DataFrame | Sequence[str | os.PathLike[str]],
    *,
    method: str | None = None,
    seed: str | None = None,
    task: str | None = None,
    score: str | None = None,
    step: str | None = None,
    only: Mapping[str, str] | None = None,
    anyway: bool = False,
    to: str | os.PathLike[str] | None = None,
) -> AblationReport:
    """The verdicts on results of other systems, with the tables and figures of an ablation's report.

    Args:
        scores: a table with a row per score; or score files (`turnwise.results.score_files`) and URIs of MLflow, as
            `http://localhost:5000#experiment`. Higher scores are better.
        method, seed, task, score, step: the columns with these names' roles; detected where None. Without a seed each
            method is one policy, and is compared with others over tasks. Of a log with steps each run's last counts.
        only: by column, the value of the rows that count.
        anyway: whether runs that lack tasks of others are compared, on the tasks that they share.
        to: the folder that gets the report's page, tables and figures; None: nothing is written.

    Raises:
        ConfigurationError: with file, row and column, for a file that cannot be read, a value that is no score, and
            columns that are not clear.
    """
    import pandas as pd

    table = scores if isinstance(scores, pd.DataFrame) else read_scores(scores)
    for column, value in (only or {}).items():
        if column not in table.columns:
            raise ConfigurationError(
                f"--only must name a column; {column!r} is none: {nearest(column, table.columns)}", "TW-unknown-column"
            )
        table = table[_has_value(table[column], value)]
    if not len(table):
        raise ConfigurationError(
            f"scores must have a row at least; found none{' with ' + str(only) if only else ''}", "TW-empty-file"
        )
    if isinstance(scores, pd.DataFrame):
        table = table.set_axis([f"row {label}" for label in table.index])
    table = with_run_names(table)
    roles: dict[Role, str | None] = {"method": method, "seed": seed, "task": task, "score": score, "step": step}
    columns = detect_columns(table, roles)
    results = results_of(table, columns, anyway)
    report = judged_scores(
        results,
        columns.score,
        policies=columns.seed is None,
        description=" ".join([columns.sentence(), *ends_apart(table, columns)]),
        sources=(
            []
            if isinstance(scores, pd.DataFrame)
            else [
                (_without_password(str(each)), "MLflow") if _is_uri(each) else (str(each), sha256_of(Path(each)))
                for each in scores
            ]
        ),
    )
    if to is not None:
        from turnwise.reporting.html.report_files import write_report

        write_report(report, Path(to))
    return AblationReport(report, None if to is None else Path(to))


def _has_value(column: pd.Series, value: str) -> pd.Series:
    """Which entries are written as `value`, or are that number: 1 is 1.0 in a column that has gaps."""
    from pandas.api.types import is_numeric_dtype

    mask = column.astype(str) == value
    if is_numeric_dtype(column):
        with suppress(ValueError):
            return mask | (column == float(value))
    return mask


def read_scores(sources: Sequence[str | os.PathLike[str]]) -> pd.DataFrame:
    """The rows of score files and of MLflow's finished runs, as one table with the place of each row as its index."""
    import pandas as pd

    files = [Path(each) for each in sources if not _is_uri(each)]
    tables = [
        *([read_score_files(files)] if files else []),
        *(_mlflow_runs(str(each)) for each in sources if _is_uri(each)),
    ]
    return pd.concat(tables)


def _is_uri(source: str | os.PathLike[str]) -> bool:
    return ":/" in str(source)


def _mlflow_runs(uri: str) -> pd.DataFrame:
    """A row per finished run: its name, `params.*`, `tags.*`, and the last value of each of `metrics.*`."""
    import pandas as pd

    from turnwise.tracking.client import TrackingClient
    from turnwise.tracking.database import place_of, require_server

    (address, _, experiment), display_uri = uri.partition("#"), _without_password(uri)
    require_server(address)
    client = TrackingClient(address)
    experiment_id = client.experiment_id(experiment) if experiment else None
    if experiment and experiment_id is None:
        raise ConfigurationError(
            f"an experiment of {place_of(address)} must have the name after #; found none called {experiment!r}",
            "TW-unknown-experiment",
        )
    runs = [
        run for run in client.runs(experiment_id=experiment_id) if run.info.status == "FINISHED" and run.data.metrics
    ]
    if not runs:
        raise ConfigurationError(
            f"MLflow's store must have a finished run with metrics; found none in {display_uri}", "TW-unknown-run"
        )
    rows = [
        {
            "run": run.info.run_name,
            **{f"params.{name}": value for name, value in run.data.params.items()},
            **{f"tags.{name}": value for name, value in run.data.tags.items() if not name.startswith("mlflow.")},
            **{f"metrics.{name}": value for name, value in run.data.metrics.items()},
        }
        for run in runs
    ]
    return pd.DataFrame(rows, index=pd.Index([f"{display_uri}, run {run.info.run_id}" for run in runs], name=PLACE))


def _without_password(uri: str) -> str:
    """MLflow's URI as it may be shown, with the name of its experiment."""
    from turnwise.tracking.database import place_of

    address, hash_sign, experiment = uri.partition("#")
    return f"{place_of(address)}{hash_sign}{experiment}"


COLUMN = "score"


def judged_scores(
    methods: Mapping[str, Results],
    measure: str,
    *,
    policies: bool,
    description: str = "",
    sources: Sequence[tuple[str, str]] = (),
) -> ReportData:
    """The report on the results of methods.

    Args:
        methods: by name, at least one.
        measure: what the scores are called. Higher is better.
        policies: whether each method is one policy, compared over tasks (`turnwise.statistics.judge`).
        description: how the results were read.
        sources: (name, digest) of what they were read from.
    """
    values = [value for each in methods.values() for run in each.runs.values() for value in run.values()]
    share = all(0.0 <= value <= 1.0 for value in values)
    judgement = judge_results(measure, methods, share=share, policies=policies)
    means = {standing.name: standing.mean for standing in judgement.standings}
    return ReportData(
        title=f"{measure} of {len(methods)} methods",
        description=description,
        columns=[ReportColumn(COLUMN, measure, SHARE if share else "", "up")],
        rows=[Row(name, "variant", {COLUMN: mean}) for name, mean in means.items()],
        lineage=list(sources),
        notes=[_size(methods, means), *_power(methods, judgement, policies)],
        judgement=judgement,
    )


def _size(methods: Mapping[str, Results], means: Mapping[str, Interval]) -> str:
    seeds, tasks = (
        {len(of(each)) for each in methods.values()} for of in (lambda each: each.runs, lambda each: each.tasks)
    )
    each = "" if len(means) == 1 else " each"
    parts = [
        f"{len(means)} method{'' if len(means) == 1 else 's'}",
        f"{_range(seeds)} {'seed' if seeds == {1} else 'seeds'}{each}",
        *([] if tasks == {1} else [f"{_range(tasks)} tasks{each}"]),
    ]
    return f"Read: {', '.join(parts)}."


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _power(methods: Mapping[str, Results], judgement: Judgement, policies: bool) -> list[str]:
    """A sentence for every pair that is left open, and one for all where none can be decided."""
    significance = (1 - judgement.level) / max(1, len(judgement.pairs))
    left_open = [pair for pair in judgement.pairs if pair.verdict not in ("higher", "lower")]
    return [_sentence(pair, methods, significance, policies) for pair in left_open]


def _sentence(pair: Comparison, methods: Mapping[str, Results], significance: float, policies: bool) -> str:
    smallest = smallest_decidable(
        methods[pair.first], methods[pair.second], significance=significance, policies=policies
    )
    over, count = ("task", pair.difference.count) if policies else ("seed", pair.difference.count)
    runs = f"{count} {over}{'' if count == 1 else 's'}"
    if smallest is None:
        return (
            f"{runs} cannot decide any difference between {pair.first} and {pair.second}: nothing shows how runs vary."
        )
    return f"{runs} cannot decide a difference below {smallest:.2g} between {pair.first} and {pair.second}."
