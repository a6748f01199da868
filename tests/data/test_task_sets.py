"""Task sets come back as they were written, and their digest names their content and order."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnwise.data.task_sets import read_task_set, require_disjoint, task_set_digest, write_task_set
from turnwise.errors import ConfigurationError
from turnwise.world import SPLITS, Task

texts = st.text(max_size=12)
tasks = st.builds(
    Task,
    world=texts,
    id=texts,
    split=st.sampled_from(SPLITS),
    seed=st.integers(0, 2**63 - 1),
    tags=st.dictionaries(texts, texts | st.integers(), max_size=3),
)
TASKS = [Task("hill", f"hill/train/{number}", "train", number, {"city": "Zürich", "hops": 2}) for number in range(3)]


@settings(max_examples=40)
@given(st.lists(tasks, max_size=5))
@example([Task("hill", "line\u2028separator\x85next\x1cfile\r\nline", "train", 1, {"\u2029": "\x0b\x0c"})])
def test_task_sets_come_back_as_they_were_written_and_keep_their_digest(task_set: list[Task]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_task_set(Path(name), "train", task_set)
        write_task_set(Path(name), "validation", task_set[::-1])
        write_task_set(Path(name), "test", [])
        assert read_task_set(Path(name), "train") == task_set
        assert read_task_set(Path(name), "validation") == task_set[::-1]
        assert read_task_set(Path(name), "test") == []
        assert task_set_digest(read_task_set(Path(name), "train")) == task_set_digest(task_set)


def test_a_task_set_is_a_file_of_readable_lines(tmp_path: Path) -> None:
    write_task_set(tmp_path, "train", TASKS[:1])
    assert (tmp_path / "train.jsonl").read_bytes().decode("utf-8") == (
        '{"id": "hill/train/0", "seed": 0, "split": "train", "tags": {"city": "Zürich", "hops": 2}, "world": "hill"}\n'
    )


def test_the_digest_of_a_task_set_never_changes() -> None:
    # sha256 of the lines of the test above, as `sha256sum train.jsonl | cut -c1-32` prints it.
    assert task_set_digest(TASKS[:1]) == "c0b933b3911879a7ed696f3d5542c2cc"
    assert task_set_digest([]) == "e3b0c44298fc1c149afbf4c8996fb924"  # sha256 of nothing


def test_every_order_of_a_task_set_has_a_digest_of_its_own() -> None:
    assert len({task_set_digest(order) for order in permutations(TASKS)}) == 6
    assert len({task_set_digest(TASKS[:count]) for count in range(4)}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"world": "hall"},
        {"id": "hill/train/00"},
        {"split": "test"},
        {"seed": 9},
        {"tags": {}},
        {"tags": {"city": "Zürich", "hops": "2"}},
    ],
)
def test_every_field_of_a_task_is_part_of_the_digest(change: dict[str, Any]) -> None:
    assert task_set_digest([replace(TASKS[0], **change)]) != task_set_digest(TASKS[:1])


def test_tags_may_be_read_only_and_in_any_order() -> None:
    read_only = replace(TASKS[0], tags=MappingProxyType({"hops": 2, "city": "Zürich"}))
    assert task_set_digest([read_only]) == task_set_digest(TASKS[:1])


def test_a_task_of_two_splits_is_refused() -> None:
    require_disjoint({"train": TASKS[:2], "test": TASKS[2:]})
    with pytest.raises(ConfigurationError, match=r"'hill/train/2'.*TW-task-sets-overlap"):
        require_disjoint({"train": TASKS, "test": TASKS[2:]})
