"""The tree that `turnwise lineage` prints: from a number or an artifact back to everything that it came from."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from turnwise.data.task_sets import task_set_digest, tasks_of
from turnwise.records.sources import NumberAnswer, Source
from turnwise.store import Reference, default_store
from turnwise.store.digests import digest_of
from turnwise.store.provenance import SHOWN_DIGITS, Ancestor, ancestry, codes, platforms, shortened
from turnwise.store.withheld import left_out_of
from turnwise.tracking.finding import UNCOMMITTED_FILE, RecordedRun, read_text
from turnwise.world import SPLITS


def print_answer(what: str, number: NumberAnswer, console: Console) -> None:
    """Print the tree of a number: the artifacts that it is read from, their ancestors, and code, parameters, platform.

    If several artifacts of one run follow each other, only the last is expanded: it has the others' ancestors too.
    """
    value = "" if number.value is None else f" = {number.value:.4g}"
    root = Tree(Text(f"{what}{value}{f'  ({number.manner})' * bool(number.manner)}", style="bold"))
    for place, source in enumerate(number.sources):
        later = number.sources[place + 1 : place + 2]
        branch = root
        said = "" if source.value is None else f"{source.value:.4g}  "
        if source.run is not None:
            if [each.run for each in later] == [source.run]:
                root.add(Text(f"{said}run {source.run.name}  {shortened(source.reference)}"))
                continue
            branch = root.add(Text(f"{said}run {source.run.name}  MLflow {source.run.id[:SHOWN_DIGITS]}"))
            parameters = digest_of(source.run.artifacts.experiment)
            branch.add(Text(f"parameters {parameters[:SHOWN_DIGITS]}  artifacts.json of the run"))
            _add_task_sets(branch, source.run)
        elif source.row:
            branch = root.add(Text(f"{said}{source.row}"))
        _add_ancestry(branch, source.reference)
    console.print(root)


def _add_ancestry(branch: Tree, reference: Reference) -> None:
    """Add the ancestors of an artifact, the commits of the code that made them, and the platforms."""
    tree = ancestry(default_store(), reference)
    _add(branch, tree)
    for code in codes(tree):
        diff = "as committed" if code.uncommitted == "none" else f"and the diff {code.uncommitted[:SHOWN_DIGITS]}"
        artifacts = "1 artifact" if code.artifacts == 1 else f"{code.artifacts} artifacts"
        branch.add(Text(f"{artifacts} by commit {code.commit[:SHOWN_DIGITS]} {diff}"))
    if of_platforms := platforms(tree):
        branch.add(Text("platform " + ", ".join(digest[:SHOWN_DIGITS] for digest in of_platforms)))


def _add_task_sets(branch: Tree, run: RecordedRun) -> None:
    """Add the task sets by the digests of their tasks, which are the same on every machine."""
    task_sets = {split: tasks_of(run.artifacts.task_set(split), split) for split in SPLITS}
    digests = [f"{split} {task_set_digest(tasks)[:SHOWN_DIGITS]}" for split, tasks in task_sets.items()]
    branch.add(Text(f"task sets {', '.join(digests)}"))


def _add(branch: Tree, ancestor: Ancestor) -> None:
    node = branch.add(Text(ancestor.line))
    for each in ancestor.inputs:
        if each.role == "policy" and ancestor.earlier:
            _add(node.add(Text(f"earlier updates: {len(ancestor.earlier)}, from")), each)
        else:
            _add(node, each)


def print_diffs(uri: str, sources: list[Source], console: Console) -> None:
    """Print which files the uncommitted changes touched, if there were any."""
    runs = {source.run.id: source.run for source in sources if source.run is not None}
    for run in runs.values():
        if run.tags.get("uncommitted", "none") == "none":
            continue
        diff = read_text(uri, run.id, UNCOMMITTED_FILE) or ""
        files = [line.removeprefix("+++ b/") for line in diff.splitlines() if line.startswith("+++ b/")]
        where = f"{UNCOMMITTED_FILE} of MLflow run {run.id[:SHOWN_DIGITS]}"
        console.print(f"diff {run.tags['uncommitted'][:SHOWN_DIGITS]}: {', '.join(files)}  ({where})")
        if left_out := left_out_of(diff):
            console.print(f"    without {left_out}")
