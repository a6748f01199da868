"""Judges results of any system: files, MLflow's runs, or a table in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ConfigurationError
from turnwise.reporting.ablation_report import AblationReport
from turnwise.results.judged_scores import judged_scores
from turnwise.results.score_columns import Role, detect_columns, results_of, with_run_names
from turnwise.results.score_files import PLACE, read_score_files
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
        table = table[table[column].astype(str) == value]
    if not len(table):
        raise ConfigurationError(
            f"scores must have a row at least; found none{' with ' + str(only) if only else ''}", "TW-empty-file"
        )
    if scores is table:
        table = table.set_axis([f"row {label}" for label in table.index])
    table = with_run_names(table)
    named: dict[Role, str | None] = {"method": method, "seed": seed, "task": task, "score": score, "step": step}
    columns = detect_columns(table, named)
    report = judged_scores(
        results_of(table, columns, anyway),
        columns.score,
        policies=columns.seed is None,
        description=columns.sentence(),
        sources=(
            []
            if isinstance(scores, pd.DataFrame)
            else [(str(each), "MLflow" if _is_uri(each) else sha256_of(Path(each))) for each in scores]
        ),
    )
    if to is not None:
        from turnwise.reporting.html.report_files import write_report

        write_report(report, Path(to))
    return AblationReport(report, None if to is None else Path(to))


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

    address, _, experiment = uri.partition("#")
    client = TrackingClient(address)
    experiment_id = client.experiment_id(experiment) if experiment else None
    if experiment and experiment_id is None:
        raise ConfigurationError(
            f"an experiment of {address} must have the name after #; found none called {experiment!r}",
            "TW-unknown-experiment",
        )
    runs = [
        run for run in client.runs(experiment_id=experiment_id) if run.info.status == "FINISHED" and run.data.metrics
    ]
    if not runs:
        raise ConfigurationError(
            f"MLflow's store must have a finished run with metrics; found none in {uri}", "TW-unknown-run"
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
    return pd.DataFrame(rows, index=pd.Index([f"{uri}, run {run.info.run_id}" for run in runs], name=PLACE))
