"""Which processes a process has started, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that they have started, and so on."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _state_and_parent(int(name))) is not None:
            children.setdefault(found[1], []).append(int(name))
    reached, waiting = [], [process]
    while waiting:
        following = children.get(waiting.pop(), [])
        reached += following
        waiting += following
    return reached


def parent(process: int) -> int:
    """The process that has started a running one."""
    found = _state_and_parent(process)
    assert found is not None, f"process {process} must be running"
    return found[1]


def command_line(process: int) -> str:
    """How a process was started; empty when it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def is_running(process: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has waited for yet has ended."""
    found = _state_and_parent(process)
    return found is not None and found[0] != "Z"


def _state_and_parent(process: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])
