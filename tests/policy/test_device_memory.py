"""The memory that a device has is the machine's, or less where its control group may use less."""

import mmap
import os
from pathlib import Path

import pytest

from turnwise.policy.device_memory import device_bytes, free_bytes, free_memory, machine_memory, own_memory

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


def test_what_is_free_is_what_linux_calls_available(tmp_path: Path) -> None:
    listed = tmp_path / "meminfo"
    listed.write_text("MemTotal:       24689764 kB\nMemFree:         1689764 kB\nMemAvailable:    8000000 kB\n")
    assert free_memory("", tmp_path, listed) == 8_000_000 * 1024


def test_a_control_group_has_left_what_neither_programs_nor_their_files_in_use_take(tmp_path: Path) -> None:
    listed = tmp_path / "meminfo"
    listed.write_text("MemAvailable:    8000000 kB\n")
    groups = limited(tmp_path, batch="6000000000", batch_job="max")
    (groups / "batch" / "memory.current").write_text("5000000000\n")
    (groups / "batch" / "memory.stat").write_text("anon 4000000000\ninactive_file 700000000\nactive_file 300000000\n")
    assert free_memory("batch/job", groups, listed) == 1_700_000_000
    (groups / "batch" / "memory.current").write_text("7000000000\n")
    assert free_memory("batch/job", groups, listed) == 0, "it may be above its limit for a moment"


def test_nothing_is_said_of_a_card_or_where_the_system_does_not_list_it(tmp_path: Path) -> None:
    assert free_bytes("cuda") is None and free_memory("", tmp_path, tmp_path / "meminfo") is None


def test_what_this_process_has_itself_counts_as_left_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmRSS:\t  900000 kB\nRssAnon:\t  700000 kB\nRssFile:\t  200000 kB\n")
    assert own_memory(status) == 700_000 * 1024
    monkeypatch.setattr("turnwise.policy.device_memory.free_memory", lambda group: 5_000_000)
    before = free_bytes("cpu")
    # Mapped here: an allocator may give a bytearray memory that this process has freed and Linux still counts.
    with mmap.mmap(-1, 200_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as models:
        models.write(b"1" * len(models))
        after = free_bytes("cpu")
    assert before is not None and after is not None and after - before > 100_000_000


def test_what_is_free_here_is_less_than_what_there_is() -> None:
    free, whole = free_bytes("cpu"), device_bytes("cpu")
    assert free is not None and whole is not None and 0 < free < whole
