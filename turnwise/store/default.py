"""The store of the current home, and what recomputes its pruned files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from turnwise.store.artifact_errors import not_made_again
from turnwise.store.artifacts import MakeAgain, Store
from turnwise.store.manifest import Reference
from turnwise.store.paths import home

_make_again: list[MakeAgain] = []


def when_pruned(make_again: MakeAgain) -> None:
    """Register the function that recomputes pruned files of the default store; replaces an earlier one."""
    _make_again[:] = [make_again]


def default_store() -> Store:
    """The store of the current home: one object per folder and process, so that nothing is verified twice."""
    return _store_at(home() / "store")


@cache
def _store_at(root: Path) -> Store:
    def make_again(reference: Reference, files: Sequence[str]) -> None:
        if not _make_again:
            raise not_made_again(reference, files)
        _make_again[0](reference, files)

    return Store(root, make_again)
