"""`turnwise prune`: remove what the section `storage` does not keep; `turnwise restore`: recompute it.

turnwise prune --dry-run                            what would be removed, and how much that is
turnwise prune -s storage.keep_evaluated=false      with other settings than those of params.yaml
turnwise restore policy/4be1f02a                    the weights of a policy whose digest begins so
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from flows.roster import replaced_inputs
from tasks.restoring import opened
from turnwise.config.schema import Storage
from turnwise.data.evaluations import success_of
from turnwise.errors import ConfigurationError
from turnwise.policy.model_files import MODEL_FILES
from turnwise.project import home
from turnwise.reporting.formatting import readable_bytes
from turnwise.store import default_store
from turnwise.store.artifacts import EVERYTHING
from turnwise.store.provenance import found_in
from turnwise.store.retention import Removal, removals


def show_pruning(storage: Storage, dry_run: bool) -> None:
    """Remove what `storage` does not keep (with `dry_run`, nothing), and print how much that is."""
    console = Console(highlight=False)
    store = default_store()
    before = _sizes(home())
    with console.status("reading the lineage"):
        found = removals(store, storage, success_of, replaced_inputs())
    removed = sum(store.prune(each.reference, each.files) for each in found) if not dry_run else 0
    _print(console, before, found)
    planned = sum(each.bytes for each in found)
    if dry_run:
        console.print(f"\nNothing was removed: {readable_bytes(planned)} would be.")
    else:
        console.print(f"\n{readable_bytes(removed)} removed.")
        if removed < planned:
            console.print(f"{readable_bytes(planned - removed)} are being read by a run and stay: prune again later.")


def show_restored(artifact: str, everything: bool) -> None:
    """Recompute the pruned files of an artifact, and print its folder.

    Args:
        artifact: kind/digest, or the beginning of a digest.
        everything: whether the optimizer's state of a policy is restored, too.
    """
    found = found_in(default_store(), artifact)
    if len(found) != 1:
        raise ConfigurationError(
            f"a digest must name one artifact of {home()}; {artifact} names "
            f"{', '.join(map(str, found)) or 'none'}: say kind/digest, or more of the digest"
        )
    weights = found[0].kind == "policy" and not everything
    folder = opened(found[0], MODEL_FILES if weights else EVERYTHING)
    Console(highlight=False, soft_wrap=True).print(str(folder))


def _print(console: Console, before: dict[str, int], found: Sequence[Removal]) -> None:
    """Print the size of each part of the home, and how much of it is pruned."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("part of the home", "holds", "pruned", "of artifacts"):
        table.add_column(heading, justify="left" if heading.startswith("part") else "right", no_wrap=True)
    for part, size in sorted(before.items(), key=lambda each: -each[1]):
        of_part = [each for each in found if part == f"store/{each.reference.kind}"]
        pruned = readable_bytes(sum(each.bytes for each in of_part)) if of_part else "–"
        table.add_row(part, readable_bytes(size), pruned, str(len(of_part)) if of_part else "–")
    table.add_section()
    planned = sum(each.bytes for each in found)
    table.add_row("all", readable_bytes(sum(before.values())), readable_bytes(planned), str(len(found)))
    console.print(table)


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of every part of a home; the store is split by kind of artifact."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            parts = path.relative_to(folder).parts
            part = "/".join(parts[: 2 if parts[0] == "store" else 1])
            sizes[part] = sizes.get(part, 0) + path.stat().st_size
    return sizes
