"""`turnwise compare`: compare recorded runs, whatever ablations they are of.

turnwise compare credit                            the variants of an ablation
turnwise compare credit longer                     those of two ablations
turnwise compare variant=mt-grpo variant=grpo-or   by tag; runs are named by id or name as well
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from flows.python.recorded import runs as recorded_runs
from flows.roster import spending
from turnwise.reporting.data.run_groups import at_equal_budgets, grouped, how_tested, outcomes_of, references
from turnwise.reporting.terminal.tables import TextTable, as_csv, print_table
from turnwise.reporting.terminal.verdicts import cell, tables
from turnwise.statistics.curves import AtEqualBudget
from turnwise.statistics.evaluation_protocol import differences, told
from turnwise.store.atomic_write import write_whole


def compare_runs(
    runs: Sequence[str], anyway: bool, success: float, csv: Path | None, html: Path | None, tracking: str | None
) -> None:
    """Print the comparison of recorded runs.

    Args:
        runs: ids, names or tags of runs or ablations.
        anyway: whether runs that were not tested alike are compared, too.
        success: the success whose first time is reported.
        csv: the folder for each table as a file, or None.
        html: the file for what is printed as a page, or None.
        tracking: MLflow's store, or None for the project's own.
    """
    console = Console(record=html is not None, highlight=False)
    found = recorded_runs(*runs, tracking=tracking)
    groups = grouped(found)
    made = [
        *tables(found.judgement(success=success, anyway=anyway), references(groups), outcomes_of(groups)),
        *_budgets(at_equal_budgets(groups, spending())),
    ]
    for table in made:
        print_table(table, console)
    for difference in told(differences(how_tested(groups))):
        console.print(f"Not tested alike, compared anyway: {difference}", soft_wrap=True)
    if csv is not None:
        for table in made:
            write_whole(csv / f"{table.name}.csv", as_csv(table))
    if html is not None:
        console.save_html(str(html))


def _budgets(found: Sequence[AtEqualBudget]) -> list[TextTable]:
    """Each variant's result for the same iterations, tokens and seconds, on the validation task set."""
    if not found:
        return []
    columns = ["", *(each.heading for each in found)]
    rows = [[name, *(cell(each.shown[name]) for each in found)] for name in found[0].shown]
    notes = [
        "By the last evaluation on the validation tasks that the budget pays for: the most that every run has spent. "
        "Runs that were ended early count with their last value, and limit no budget. "
        "Tokens are those sampled; seconds are what each stage took when it was computed, evaluations left out."
    ]
    return [TextTable("budgets", "At the same cost", columns, rows, notes)]
