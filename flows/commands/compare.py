"""`turnwise compare`: lay recorded runs beside each other, whatever ablations they are of.

turnwise compare credit                            the variants of an ablation
turnwise compare credit longer                     those of two ablations
turnwise compare variant=mt-grpo variant=grpo-or   by tag; runs are named by id or name as well
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.commands.arguments import number

if TYPE_CHECKING:
    from turnwise.reporting.terminal.tables import TextTable
    from turnwise.statistics.curves import AtEqualBudget


def add_compare(commands: Any) -> None:
    """Add the command and its arguments."""
    compare = commands.add_parser("compare", help="lay recorded runs beside each other, with verdicts")
    compare.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        default=[""],
        help="id, name or tag of runs or ablations (default: the latest)",
    )
    compare.add_argument("--anyway", action="store_true", help="compare also what was not tested alike")
    compare.add_argument(
        "--success", type=number(0.0, 1.0), default=0.8, help="when was it reached? (default: %(default)s)"
    )
    compare.add_argument("--csv", type=Path, metavar="FOLDER", help="write each table as a file, too")
    compare.add_argument("--html", type=Path, metavar="FILE", help="write what is printed as a page, too")
    compare.add_argument("--tracking", metavar="URI", help="default: tracking.uri of params.yaml, or the project's own")
    compare.set_defaults(run=compare_runs)


def compare_runs(parsed: argparse.Namespace) -> None:
    """Run the command."""
    from rich.console import Console

    from flows.commands.show import recorded_in
    from flows.recording.comparison import at_equal_budgets, grouped, how_tested, judged, references
    from turnwise.reporting.terminal.tables import as_csv, print_table
    from turnwise.reporting.terminal.verdicts import tables
    from turnwise.statistics.evaluation_protocol import differences, require_comparable, told
    from turnwise.store.atomic_write import write_whole
    from turnwise.tracking.finding import find_runs

    console = Console(record=parsed.html is not None, highlight=False)
    uri = parsed.tracking or recorded_in()
    groups = grouped([run for wanted in parsed.runs for run in find_runs(uri, wanted)])
    of_runs = how_tested(groups)
    if not parsed.anyway:
        require_comparable(of_runs)
    made = [*tables(judged(groups, parsed.success), references(groups)), *_budgets(at_equal_budgets(groups))]
    for table in made:
        print_table(table, console)
    for difference in told(differences(of_runs)):
        console.print(f"Not tested alike, compared anyway: {difference}", soft_wrap=True)
    if parsed.csv is not None:
        for table in made:
            write_whole(parsed.csv / f"{table.name}.csv", as_csv(table))
    if parsed.html is not None:
        console.save_html(str(parsed.html))


def _budgets(found: Sequence[AtEqualBudget]) -> list[TextTable]:
    """Each variant's result for the same iterations, tokens and seconds, on the validation task set."""
    from turnwise.reporting.terminal.tables import TextTable
    from turnwise.reporting.terminal.verdicts import cell

    if not found:
        return []
    columns = ["", *(each.heading for each in found)]
    rows = [[name, *(cell(each.shown[name]) for each in found)] for name in found[0].shown]
    notes = [
        "By the last evaluation on the validation panel that the budget pays for: the most that every run has spent. "
        "Tokens are those sampled; seconds are what each stage took when it was computed, evaluations left out."
    ]
    return [TextTable("budgets", "At the same cost", columns, rows, notes)]
