"""How long computing took: what is kept of it, over several goes."""

from __future__ import annotations

from pathlib import Path

from turnwise.records.results import keep_time
from turnwise.store import Reference, default_store


def told() -> Reference:
    with default_store().write("report") as draft:
        (draft.folder / "report.json").write_text("{}")
    return draft.reference


def test_several_goes_at_the_same_results_add_up(turnwise_home: Path) -> None:
    keep_time(told(), seconds=100.0, processes=2, recomputed=True)
    keep_time(told(), seconds=7.0, processes=1, recomputed=False)  # something was damaged, say
    assert default_store().clock(told()) == {"wall_seconds": 107.0, "processes": 2}


def test_results_that_were_all_computed_again_took_as_long_as_that(turnwise_home: Path) -> None:
    keep_time(told(), seconds=100.0, processes=2, recomputed=True)
    keep_time(told(), seconds=80.0, processes=1, recomputed=True)
    assert default_store().clock(told()) == {"wall_seconds": 80.0, "processes": 1}
