"""The layouts of the files that stages write: a layout that changes has another number, which is in the cache key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from stage_samples import trajectory, turn

from turnwise.data.arrays import Advantages, Ragged
from turnwise.data.conversations import CONVERSATIONS, Conversation, ConversationExchange, write_conversations
from turnwise.data.scores import SCORES, Scores, write_scores
from turnwise.data.task_sets import TASK_SETS, write_task_set
from turnwise.data.trajectory import LostEpisode
from turnwise.data.trajectory_files import CREDIT, TRAJECTORIES, write_credit, write_trajectories
from turnwise.store.digests import digest_of
from turnwise.world import Task

TASK = Task("frozen_lake", "lake/1", "train", 1, tags={})


def _trajectories(folder: Path) -> None:
    write_trajectories(folder, [trajectory(0, 0, [turn({"goal": 1.0})])], [LostEpisode(TASK, 0, 1, "why")])


def _credit(folder: Path) -> None:
    one, tokens = Ragged.of([[1.0]]), Ragged.of([[1.0, 2.0]])
    write_credit(
        folder,
        Advantages(np.array([0]), one, tokens, tokens),
        group=(0,),
        turn_rewards=one,
        outcome=(0.0,),
        reply_lengths=Ragged.of([[2]], np.int64),
    )


def _scores(folder: Path) -> None:
    write_scores(folder, Scores(Ragged.of([[1.0]]), np.array([0.0])))


def _task_set(folder: Path) -> None:
    write_task_set(folder, "train", [TASK])


def _conversations(folder: Path) -> None:
    write_conversations(folder, [Conversation("be brief", (ConversationExchange("hello", "hi", False),))])


LAYOUTS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    TRAJECTORIES: (_trajectories, "53d17f3e0d6fe6db7b161edf416a3895"),
    CREDIT: (_credit, "aac52ff9f4611bd932413699ad00c262"),
    SCORES: (_scores, "8d890db90eac306a7425a0457ae1d8bc"),
    TASK_SETS: (_task_set, "b11710156a193827e90a69a320dc7a06"),
    CONVERSATIONS: (_conversations, "21c0996c110b8f666bd3b5b8ac1adb6c"),
}
"""By layout with its number: what writes a sample, and the digest of the layout of the sample's files."""


def layout_of(folder: Path) -> dict[str, Any]:
    """By file, the columns and their types of a Parquet file, or the keys and types of a line of JSON."""
    return {path.name: _layout_of_file(path) for path in sorted(folder.iterdir())}


def _layout_of_file(path: Path) -> Any:
    if path.suffix == ".parquet":
        return str(parquet.read_schema(path).remove_metadata())
    text = path.read_text()
    return (
        _keys(json.loads(text)) if path.suffix == ".json" else [_keys(json.loads(line)) for line in text.splitlines()]
    )


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(each) for key, each in sorted(value.items())}
    return [_keys(each) for each in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_changed_layout_has_another_number(tmp_path: Path, layout: str) -> None:
    write, digest = LAYOUTS[layout]
    write(tmp_path)
    assert digest_of(layout_of(tmp_path)) == digest, (
        f"files of the layout {layout!r} look different: give the layout another number, so that results in the old "
        "one are not taken for it, and write the digest of the new one here"
    )
