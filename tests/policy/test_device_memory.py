"""The memory that a device has is the machine's, or less where its control group may use less."""

import os
from pathlib import Path

from turnwise.policy.device_memory import device_bytes, machine_memory

WHOLE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limited(folder: Path, **limits: str) -> Path:
    (folder / "batch" / "job").mkdir(parents=True)
    for place, limit in limits.items():
        (folder / place.replace("_", "/") / "memory.max").write_text(limit + "\n")
    return folder


def test_without_a_limit_it_is_all_of_the_machines(tmp_path: Path) -> None:
    assert machine_memory("", tmp_path) == machine_memory("nothing/there", tmp_path) == WHOLE
    assert machine_memory("batch/job", limited(tmp_path, batch_job="max")) == WHOLE


def test_the_lowest_limit_of_the_groups_above_counts(tmp_path: Path) -> None:
    limits = limited(tmp_path, batch="1000", batch_job="2000")
    assert machine_memory("batch/job", limits) == 1000
    assert machine_memory("batch", limits) == 1000


def test_this_machine_has_memory_and_no_more_than_it_says() -> None:
    found = device_bytes("cpu")
    assert found is not None and 0 < found <= WHOLE
