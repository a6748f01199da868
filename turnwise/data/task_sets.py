"""Task sets: ordered lists of tasks, one per split, identified by a digest and fixed before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store
from turnwise.world import Split, Task, World

TASK_SETS = "task set 1"
"""The layout of these files. It is in the cache key of who writes them: a changed layout gets another number."""


def draw_task_set(world: World, split: Split, count: int) -> list[Task]:
    """The first `count` tasks of a split. Raises ConfigurationError where the world has fewer."""
    try:
        return world.tasks(split, count)
    except ValueError as error:
        raise ConfigurationError(f"data.{split}_tasks: {error}", "TW-too-few-tasks") from error


def write_task_set(folder: Path, split: Split, tasks: Sequence[Task]) -> None:
    """Write a task set as the JSON Lines file `SPLIT.jsonl`, one task per line, in order."""
    task_set_file(folder, split).write_text("".join(_line(task) for task in tasks), encoding="utf-8")


def read_task_set(folder: Path, split: Split) -> list[Task]:
    """The tasks of one split that `write_task_set` wrote, in order."""
    text = task_set_file(folder, split).read_text(encoding="utf-8")
    # Within a string JSON escapes "\n" but not U+0085 or U+2028, at which `splitlines` would cut, too.
    return [Task(**json.loads(line)) for line in text.split("\n") if line]


def tasks_of(task_set: Reference, split: Split) -> Sequence[Task]:
    """The tasks of one split that a task set's artifact holds, in order."""
    return _tasks(default_store().folder(task_set), split)


# An artifact never changes under its digest, so its tasks can be cached by folder.
@cache
def _tasks(folder: Path, split: Split) -> tuple[Task, ...]:
    return tuple(read_task_set(folder, split))


def task_set_file(folder: Path, split: Split) -> Path:
    """The path of a split's file in a folder."""
    return folder / f"{split}.jsonl"


def require_disjoint(task_sets: Mapping[Split, Sequence[Task]]) -> None:
    """Raise ConfigurationError where two splits share a task."""
    split_by_task: dict[str, Split] = {}
    for split, tasks in task_sets.items():
        for task in tasks:
            if split_by_task.setdefault(task.id, split) != split:
                raise ConfigurationError(
                    f"splits must be disjoint; task {task.id!r} is in {split_by_task[task.id]} and {split}",
                    "TW-task-sets-overlap",
                )


def task_set_digest(tasks: Sequence[Task]) -> str:
    """The permanent name of a task set: the first 32 hexadecimal characters of the SHA-256 of its tasks, in order."""
    return hashlib.sha256("".join(_line(task) for task in tasks).encode()).hexdigest()[:32]


def _line(task: Task) -> str:
    return json.dumps({**vars(task), "tags": dict(task.tags)}, sort_keys=True, ensure_ascii=False) + "\n"
