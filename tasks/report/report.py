"""Report: collects an ablation's results into the report data, `report.json`, from which everything is drawn."""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.health.health import read_health
from tasks.orchestration.deferred import task
from tasks.playing import world_code
from tasks.restoring import opened
from turnwise.policy.token_texts import Spelling
from turnwise.reporting.data.tables import DATA_FILE
from turnwise.results.report import Compared, ReportParameters
from turnwise.store import Reference, default_store


@task(name="report", task_run_name="{label}: report", retries=1)
@depends_on(
    kernel=("turnwise.results.report",),
    writes="report 2",
    code=lambda parameters: world_code(parameters.world),
)
def report(
    parameters: ReportParameters,
    *,
    baselines: dict[str, Reference],
    warm_start: Reference,
    starts: list[Reference],
    iterations: list[list[dict[str, Reference]]],
    tests: list[Reference],
    tokenizer: Reference,
    label: str = "comparison",
) -> Reference:
    """The report data of an ablation, `report.json`.

    Lists have one entry per run; `iterations` has per run and iteration its artifacts by name.
    """
    comparison = Compared(parameters, baselines, warm_start, starts, iterations, tests)
    alarms = [[read_health(artifacts["health"]).alarm for artifacts in run_iterations] for run_iterations in iterations]
    data = comparison.report(alarms, Spelling(default_store().folder(tokenizer)), opened)
    with default_store().write("report") as draft:
        (draft.folder / DATA_FILE).write_text(data.to_json(), encoding="utf-8")
        primary = comparison.world.primary_column.heading
        for row in data.rows:
            if (cell := row.cells[primary]) is not None:
                draft.metrics[f"{row.name}/{primary}"] = cell.value
    return draft.reference
