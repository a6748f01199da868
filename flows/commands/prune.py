"""`turnwise prune`: remove what the section `storage` does not keep; `turnwise restore`: make it again.

turnwise prune --dry-run                            what would be removed, and how much that is
turnwise prune -s storage.keep_evaluated=false      with other settings than those of params.yaml
turnwise restore policy/4be1f02a                    the weights of a policy whose digest begins so
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.errors import ConfigurationError
from turnwise.store.paths import home, project_root

if TYPE_CHECKING:
    from rich.console import Console

    from turnwise.store.chains import Removal


def add_prune(commands: Any) -> None:
    """Add both commands and their arguments."""
    prune = commands.add_parser("prune", help="remove what the section storage does not keep; it can be made again")
    prune.add_argument("overlays", nargs="*", metavar="OVERLAY", help="files laid over the parameters, in order")
    prune.add_argument("--parameters", default="params.yaml", help="the parameters file (default: %(default)s)")
    prune.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="set one value")
    prune.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    prune.set_defaults(run=show_pruning)
    restore = commands.add_parser("restore", help="make the pruned files of an artifact again")
    restore.add_argument("artifact", metavar="KIND/DIGEST", help="or the beginning of a digest")
    restore.add_argument("--everything", action="store_true", help="of a policy the optimizer's state, too")
    restore.set_defaults(run=show_restored)


def show_pruning(parsed: argparse.Namespace) -> None:
    """Run `turnwise prune`."""
    from rich.console import Console

    from flows.retention import success
    from turnwise.experiment import load
    from turnwise.reporting.formatting import readable_bytes
    from turnwise.store import default_store
    from turnwise.store.chains import removals

    overlays = [Path(overlay) for overlay in parsed.overlays]
    storage = load(project_root() / parsed.parameters, overlays, parsed.set).storage
    console = Console(highlight=False)
    store = default_store()
    before = _sizes(home())
    with console.status("reading the lineage"):
        found = removals(store, storage, success)
    removed = sum(store.prune(each.reference, each.files) for each in found) if not parsed.dry_run else 0
    _print(console, before, found)
    planned = sum(each.bytes for each in found)
    if parsed.dry_run:
        console.print(f"\nNothing was removed: {readable_bytes(planned)} would be.")
    else:
        console.print(f"\n{readable_bytes(removed)} removed.")
        if removed < planned:
            console.print(f"{readable_bytes(planned - removed)} are being read by a run and stay: prune again later.")


def show_restored(parsed: argparse.Namespace) -> None:
    """Run `turnwise restore`."""
    from rich.console import Console

    import tasks.stage  # noqa: F401  (makes again what was pruned)
    from turnwise.policy.model_files import MODEL_FILES
    from turnwise.store import default_store
    from turnwise.store.artifacts import EVERYTHING
    from turnwise.store.provenance import found_in

    found = found_in(default_store(), parsed.artifact)
    if len(found) != 1:
        raise ConfigurationError(
            f"a digest must name one artifact of {home()}; {parsed.artifact} names "
            f"{', '.join(map(str, found)) or 'none'}: say kind/digest, or more of the digest"
        )
    weights = found[0].kind == "policy" and not parsed.everything
    folder = default_store().folder(found[0], MODEL_FILES if weights else EVERYTHING)
    Console(highlight=False, soft_wrap=True).print(str(folder))


def _print(console: Console, before: dict[str, int], found: Sequence[Removal]) -> None:
    """Print the size of each part of the home, and how much of it is pruned."""
    from rich import box
    from rich.table import Table

    from turnwise.reporting.formatting import readable_bytes

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
