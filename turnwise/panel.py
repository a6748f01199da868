"""Panels: ordered lists of tasks with a digest, fixed before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.world import SPLITS, Split, Task


def write_panels(folder: Path, panels: Mapping[Split, Sequence[Task]]) -> None:
    """One JSON Lines file per split, a task a line, in order."""
    for split in SPLITS:
        (folder / f"{split}.jsonl").write_text("".join(_line(task) for task in panels[split]), encoding="utf-8")


def read_panel(folder: Path, split: Split) -> list[Task]:
    """The tasks of one split, in order."""
    text = (folder / f"{split}.jsonl").read_text(encoding="utf-8")
    # JSON escapes "\n" only: `splitlines` would cut at U+0085 or U+2028 within a name, too.
    return [Task(**json.loads(line)) for line in text.split("\n") if line]


def panel_digest(tasks: Sequence[Task]) -> str:
    """What names a panel for ever: 32 hexadecimal characters over its tasks in order."""
    return hashlib.sha256("".join(_line(task) for task in tasks).encode()).hexdigest()[:32]


def _line(task: Task) -> str:
    return json.dumps({**vars(task), "tags": dict(task.tags)}, sort_keys=True, ensure_ascii=False) + "\n"
