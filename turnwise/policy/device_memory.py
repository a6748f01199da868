"""The memory that a device has, a card's own, or this machine's as far as its control group may use it; and what other
programs have left of this machine's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Where Linux lists the limits that a container or a batch system has set."""

_DRIVERS = (Path("/proc/driver/nvidia"), Path("/dev/dxg"), Path("/dev/kfd"))
"""What there is with NVIDIA's driver, with its driver under WSL, and with AMD's."""


def device_bytes(device: str) -> int | None:
    """The memory of a device, `cpu` or `cuda`, in bytes; None for a card that is not there."""
    return _card_memory() if device == "cuda" else machine_memory(_control_group())


def machine_memory(group: str, limits: Path = CONTROL_GROUPS) -> int:
    """The memory of this machine in bytes, or the lowest limit of the control group `group` and the groups above it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole, *(limit for _, limit in _read_limits(group, limits))])


def free_bytes(device: str) -> int | None:
    """What other programs have left this process of a device's memory, in bytes, with what it has already: a notebook
    that has trained has models, whose memory the next run uses again. None where nothing says it: on a card, and on a
    system that is not Linux.
    """
    free = None if device == "cuda" else free_memory(_control_group())
    return None if free is None else free + own_memory()


def own_memory(status: Path = Path("/proc/self/status")) -> int:
    """The memory of this process in bytes, without what it has mapped of files, whose memory the system can take."""
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(lines.get("RssAnon", "0").split()[0]) * 1024


def free_memory(group: str, limits: Path = CONTROL_GROUPS, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What is free of this machine's memory in bytes, caches of files included, or of the limit of a control group that
    has the least left; None where the system does not list it.
    """
    if not meminfo.is_file():
        return None
    kilobytes = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines())["MemAvailable"]
    free = [int(kilobytes.split()[0]) * 1024]
    for place, limit in _read_limits(group, limits):
        used = int((place / "memory.current").read_text(encoding="utf-8"))
        parts = dict(line.split() for line in (place / "memory.stat").read_text(encoding="utf-8").splitlines())
        free.append(max(0, limit - used + int(parts["inactive_file"])))
    return min(free)


def _read_limits(group: str, limits: Path) -> Iterator[tuple[Path, int]]:
    """The folder and the limit in bytes of each control group that has one, of `group` and those above it."""
    for place in (limits / group, *(limits / group).parents):
        if not place.is_relative_to(limits):
            return
        path = place / "memory.max"
        limit = path.read_text(encoding="utf-8").strip() if path.is_file() else "max"
        if limit != "max":
            yield place, int(limit)


def _control_group() -> str:
    """The path of this process's control group below `CONTROL_GROUPS` (version 2); empty where there is none."""
    path = Path("/proc/self/cgroup")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")


def has_card() -> bool:
    """Whether this machine can have a card, by the files of its driver: where there are none, torch is not asked."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or any(path.exists() for path in _DRIVERS)


def _card_memory() -> int | None:
    if not has_card():
        return None
    import torch

    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
