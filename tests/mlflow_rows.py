"""The rows of MLflow's metrics that a repeat must write again, by which a lost or a doubled one is found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

METRICS = """
    SELECT runs.name, metrics.key, metrics.step, metrics.value
    FROM metrics JOIN runs ON runs.run_uuid = metrics.run_uuid
    WHERE metrics.key NOT LIKE '%seconds%' AND metrics.key NOT LIKE '%per_second%' AND metrics.key NOT LIKE '%memory%'
"""
"""Run, name, step and value; without what a clock or a machine says."""


def metrics_in(database: Path) -> list[tuple[Any, ...]]:
    """Those of a SQLite file, in order."""
    with closing(sqlite3.connect(database)) as opened:
        return sorted(opened.execute(METRICS).fetchall())
