"""`turnwise lineage`: from a number in the report, or an artifact, back to everything that it came from.

turnwise lineage mt-grpo/success                               a cell of the report's table
turnwise lineage update/entropy_nats --of "mt-grpo seed 1" --iteration 7   a metric in MLflow
turnwise lineage policy/4be1f02a                               an artifact, by the beginning of its digest
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.arguments import whole
from flows.recorded_metrics import MADE_BY, told_of
from turnwise.ancestry import SHOWN_DIGITS, Ancestor, ancestry, codes, found_in, platforms
from turnwise.digests import digest_of
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store
from turnwise.tracking.values import metric_name
from turnwise.withheld import left_out_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.tree import Tree

    from turnwise.tracking.finding import RecordedRun


@dataclass(frozen=True)
class Source:
    """One number of one run, and the artifact that it is read from."""

    value: float | None
    reference: Reference
    run: RecordedRun | None


def add_lineage(commands: Any) -> None:
    """The command's arguments."""
    lineage = commands.add_parser("lineage", help="from a number or an artifact back to all that it came from")
    lineage.add_argument(
        "what", metavar="METRIC-or-ARTIFACT", help="VARIANT/COLUMN of the report, a metric of MLflow, or kind/digest"
    )
    lineage.add_argument("--of", metavar="RUN", default="", help="id, name or tag of the run (default: the latest)")
    lineage.add_argument("--iteration", type=whole(0), metavar="N", help="of the metric (default: the last)")
    lineage.add_argument("--tracking", metavar="URI", help="default: tracking.uri of params.yaml, or the project's own")
    lineage.set_defaults(run=show_lineage)


def show_lineage(parsed: argparse.Namespace) -> None:
    """Run the command."""
    from rich.console import Console

    console = Console(highlight=False)
    artifacts = found_in(default_store(), parsed.what)
    if len(artifacts) > 1:
        raise ConfigurationError(
            f"a digest must be long enough to name one artifact; {parsed.what} is the beginning of "
            f"{', '.join(map(str, artifacts))}: give more of it"
        )
    if artifacts:
        print_sources(parsed.what, [Source(None, artifacts[0], None)], console)
        return
    from flows.show import recorded_in
    from turnwise.tracking.finding import find_runs

    uri = parsed.tracking or recorded_in()
    sources = sources_of(parsed.what, find_runs(uri, parsed.of), parsed.iteration)
    print_sources(parsed.what, sources, console)
    _print_diffs(uri, sources, console)


def sources_of(what: str, runs: list[RecordedRun], iteration: int | None) -> list[Source]:
    """What a metric's name means in these runs: the test, an evaluation, an iteration's artifact, or a table's cell.

    Raises ConfigurationError where none of them has it.
    """
    found = [source for run in runs if (source := _of_run(what, run, iteration)) is not None]
    found = found or [source for run in runs if (source := _of_cell(what, run)) is not None]
    if not found:
        variants = ", ".join(dict.fromkeys(run.artifacts.variant for run in runs))
        raise ConfigurationError(
            "lineage starts from an artifact of the store, a metric of a run, or a cell of the report's table; "
            f"{what!r} is none of them: say kind/digest; or test/..., {'/..., '.join(MADE_BY)}/... as "
            f"in MLflow; or VARIANT/COLUMN with one of the variants {variants}"
        )
    return found


def _of_run(what: str, run: RecordedRun, iteration: int | None) -> Source | None:
    """A metric as the recorder names it: `turnwise.tracking` shows the same numbers."""
    group = what.partition("/")[0]
    reference = _artifact_of(group, run, iteration)
    if reference is None:
        return None
    metrics = {metric_name(name): value for name, value in told_of(group, reference).items()}
    return Source(metrics[what], reference, run) if what in metrics else None


def _artifact_of(group: str, run: RecordedRun, iteration: int | None) -> Reference | None:
    artifacts, made = run.artifacts, run.artifacts.iterations
    of_no_iteration = {"test": artifacts.test, "test_at_horizon": artifacts.test_at_horizon}
    if group in of_no_iteration:
        return of_no_iteration[group]
    if iteration == 0:
        return {"validation": artifacts.start, "validation_at_horizon": artifacts.start_at_horizon}.get(group)
    wanted = MADE_BY.get(group)
    if wanted is None or (iteration is not None and not 1 <= iteration <= len(made)):
        return None
    chosen = (
        made[iteration - 1 : iteration] if iteration is not None else [each for each in made if wanted in each][-1:]
    )
    return chosen[0].get(wanted) if chosen else None


def _of_cell(what: str, run: RecordedRun) -> Source | None:
    """A cell of the report: the variant, a slash, and the column's heading."""
    from tasks.evaluate import SAMPLED, read_evaluation
    from turnwise import measures
    from turnwise.world import make_world

    variant, _, heading = what.rpartition("/")
    if run.artifacts.variant != variant or run.artifacts.test is None:
        return None
    section = run.artifacts.experiment["world"]
    columns = {column.heading: column for column in make_world(section["name"], section["parameters"]).columns}
    if heading not in columns:
        return None
    values = measures.by_task(read_evaluation(run.artifacts.test, SAMPLED), columns[heading])
    return Source(sum(values) / len(values) if values else None, run.artifacts.test, run)


def print_sources(what: str, sources: list[Source], console: Console) -> None:
    """The tree of a number: its runs, and above each the artifacts; then the code, parameters and platform."""
    from rich.text import Text
    from rich.tree import Tree

    values = [source.value for source in sources if source.value is not None]
    mean = f" = {sum(values) / len(values):.4g}" if values else ""
    over = f"  (mean of {len(values)} runs)" if len(values) > 1 else ""
    root = Tree(Text(f"{what}{mean}{over}", style="bold"))
    for source in sources:
        tree = ancestry(default_store(), source.reference)
        branch = root
        if source.run is not None:
            value = "" if source.value is None else f"{source.value:.4g}  "
            branch = root.add(Text(f"{value}run {source.run.name}  MLflow {source.run.id[:SHOWN_DIGITS]}"))
            parameters = digest_of(source.run.artifacts.experiment)
            branch.add(Text(f"parameters {parameters[:SHOWN_DIGITS]}  artifacts.json of the run"))
            _add_panels(branch, source.run)
        _add(branch, tree)
        for code in codes(tree):
            diff = "as committed" if code.uncommitted == "none" else f"and the diff {code.uncommitted[:SHOWN_DIGITS]}"
            artifacts = "1 artifact" if code.artifacts == 1 else f"{code.artifacts} artifacts"
            branch.add(Text(f"{artifacts} by commit {code.commit[:SHOWN_DIGITS]} {diff}"))
        if of_platforms := platforms(tree):
            branch.add(Text("platform " + ", ".join(digest[:SHOWN_DIGITS] for digest in of_platforms)))
    console.print(root)


def _add_panels(branch: Tree, run: RecordedRun) -> None:
    """The panels by the digests of their tasks, which other machines have as well."""
    from rich.text import Text

    from tasks.playing import tasks_of
    from turnwise.panel import panel_digest
    from turnwise.world import SPLITS

    panels = {split: tasks_of(run.artifacts.panel(split), split) for split in SPLITS}
    digests = [f"{split} {panel_digest(tasks)[:SHOWN_DIGITS]}" for split, tasks in panels.items()]
    branch.add(Text(f"panels {', '.join(digests)}"))


def _add(branch: Tree, ancestor: Ancestor) -> None:
    from rich.text import Text

    node = branch.add(Text(ancestor.line))
    for each in ancestor.inputs:
        if each.role == "policy" and ancestor.earlier:
            _add(node.add(Text(f"earlier updates: {len(ancestor.earlier)}, from")), each)
        else:
            _add(node, each)


def _print_diffs(uri: str, sources: list[Source], console: Console) -> None:
    """Which files the uncommitted changes touched, where there were any."""
    from turnwise.tracking.finding import UNCOMMITTED_FILE, read_text

    for source in sources:
        if source.run is None or source.run.tags.get("uncommitted", "none") == "none":
            continue
        diff = read_text(uri, source.run.id, UNCOMMITTED_FILE) or ""
        files = [line.removeprefix("+++ b/") for line in diff.splitlines() if line.startswith("+++ b/")]
        where = f"{UNCOMMITTED_FILE} of MLflow run {source.run.id[:SHOWN_DIGITS]}"
        console.print(f"diff {source.run.tags['uncommitted'][:SHOWN_DIGITS]}: {', '.join(files)}  ({where})")
        if left_out := left_out_of(diff):
            console.print(f"    without {left_out}")
