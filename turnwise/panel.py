"""Panels: ordered lists of tasks with a digest, fixed before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from turnwise.world import SPLITS, Split, Task


def write_panels(folder: Path, panels: Mapping[Split, Sequence[Task]]) -> None:
    """One JSON Lines file per split, a task a line, in order."""
    for split in SPLITS:
        (folder / f"{split}.jsonl").write_text("".join(_line(task) for task in panels[split]))


def read_panel(folder: Path, split: Split) -> list[Task]:
    """The tasks of one split, in order."""
    return [Task(**json.loads(line)) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def panel_digest(tasks: Sequence[Task]) -> str:
    """What names a panel for ever: 32 hexadecimal characters over its tasks in order."""
    return hashlib.sha256("".join(_line(task) for task in tasks).encode()).hexdigest()[:32]


def _line(task: Task) -> str:
    return json.dumps(asdict(task), sort_keys=True, ensure_ascii=False) + "\n"
