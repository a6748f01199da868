"""Trajectories are written so that anyone can read them, and come back as they were."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from data_samples import TASK, TWO_TURNS, trajectories
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, trajectory_arrays
from turnwise.data.trajectory_files import (
    GREEDY,
    LOST_FILE,
    SAMPLED,
    TRAJECTORIES_FILE,
    TURNS_FILE,
    read_arrays,
    read_evaluation,
    read_trajectories,
    write_trajectories,
)
from turnwise.errors import ArtifactError
from turnwise.store import default_store


@settings(max_examples=40)
@given(st.lists(trajectories, max_size=4))
def test_trajectories_come_back_as_they_were_written(written: list[Trajectory]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_trajectories(Path(name), written)
        assert read_trajectories(Path(name)) == written


@settings(max_examples=20)
@given(st.lists(trajectories, max_size=4))
def test_the_arrays_that_are_read_are_those_of_what_was_written(written: list[Trajectory]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_trajectories(Path(name), written)
        found, expected = read_arrays(Path(name)), trajectory_arrays(written)
    assert list(found.rewards) == list(expected.rewards)
    for name, of_turns in expected.rewards.items():
        assert found.rewards[name].tolist() == of_turns.tolist()
    for field in (
        "group",
        "replica",
        "truncated",
        "offsets",
        "last_attempt",
        "acts",
        "states",
        "trained",
        "opens_segment",
    ):
        assert getattr(found, field).tolist() == getattr(expected, field).tolist()
    for field in ("observation_tokens", "reply_tokens", "log_probabilities"):
        assert getattr(found, field) == getattr(expected, field)


@settings(max_examples=20)
@given(st.lists(trajectories, max_size=4))
def test_equal_trajectories_have_equal_bytes_in_whatever_order_rewards_were_emitted(written: list[Trajectory]) -> None:
    reordered = [
        replace(
            each,
            turns=tuple(
                replace(
                    turn,
                    rewards=dict(reversed(turn.rewards.items())),  # type: ignore[call-overload]
                    metrics=dict(reversed(turn.metrics.items())),  # type: ignore[call-overload]
                )
                for turn in each.turns
            ),
        )
        for each in written
    ]
    contents = []
    for content in (written, reordered):
        with tempfile.TemporaryDirectory() as name:
            write_trajectories(Path(name), content)
            contents.append([(Path(name) / file).read_bytes() for file in (TRAJECTORIES_FILE, TURNS_FILE)])
    assert contents[0] == contents[1]


def test_pandas_reads_one_row_per_trajectory_and_one_per_turn(tmp_path: Path) -> None:
    empty = Trajectory(TASK, 4, 0, (), Ending.TOKEN_BUDGET, "too long")
    write_trajectories(tmp_path, [TWO_TURNS, empty])
    trajectories = pd.read_parquet(tmp_path / TRAJECTORIES_FILE)
    assert [list(endings) for endings in trajectories.pop("earlier_endings")] == [[], []]
    assert trajectories.to_dict("records") == [
        {
            "trajectory": 0,
            "group": 3,
            "replica": 1,
            "world": "hill",
            "task": "hill/train/7",
            "split": "train",
            "task_seed": 7,
            "tags": json.dumps({"hops": 2, "kind": "Zürich"}),
            "ending": "turn_limit",
            "success": False,
            "turns": 2,
            "final_observation": "the end",
        },
        {
            "trajectory": 1,
            "group": 4,
            "replica": 0,
            "world": "hill",
            "task": "hill/train/7",
            "split": "train",
            "task_seed": 7,
            "tags": json.dumps({"hops": 2, "kind": "Zürich"}),
            "ending": "token_budget",
            "success": False,
            "turns": 0,
            "final_observation": "too long",
        },
    ]
    turns = pd.read_parquet(tmp_path / TURNS_FILE)
    assert turns["trajectory"].tolist() == [0, 0] and turns["turn"].tolist() == [0, 1]
    assert [list(tokens) for tokens in turns["reply_tokens"]] == [[1, 2, 3], [4, 5]]
    assert [list(actions) for actions in turns["actions"]] == [["up"], []]
    assert turns["invalid"].isna().tolist() == [True, False] and turns["invalid"][1] == "No."
    assert dict(turns["rewards"][0]) == {"format": 1.0, "goal": 0.25}


def test_lost_episodes_are_written_beside_in_any_language(tmp_path: Path) -> None:
    lost = [LostEpisode(TASK, 3, 0, "Überlastet: \u2028 'timeout'"), LostEpisode(TASK, 3, 2, "hung")]
    write_trajectories(tmp_path, [], lost)
    assert read_trajectories(tmp_path) == []
    text = (tmp_path / LOST_FILE).read_bytes().decode("utf-8")
    assert json.loads(text) == [
        {"task": "hill/train/7", "group": 3, "replica": 0, "reason": "Überlastet: \u2028 'timeout'"},
        {"task": "hill/train/7", "group": 3, "replica": 2, "reason": "hung"},
    ]
    assert "Überlastet" in text


def test_no_losses_are_an_empty_list(tmp_path: Path) -> None:
    write_trajectories(tmp_path, [TWO_TURNS])
    assert json.loads((tmp_path / LOST_FILE).read_bytes()) == []


def test_files_of_another_version_are_refused_by_the_columns_that_they_lack(tmp_path: Path) -> None:
    write_trajectories(tmp_path, [])
    turns = parquet.read_table(tmp_path / TURNS_FILE)
    parquet.write_table(turns.drop_columns(["kind", "asked"]), tmp_path / TURNS_FILE)
    with pytest.raises(ArtifactError, match="TW-other-version"):
        read_trajectories(tmp_path)


@pytest.mark.usefixtures("turnwise_home")
def test_the_episodes_of_a_mode_are_read_and_a_mode_that_was_not_played_has_none() -> None:
    with default_store().write("evaluation") as draft:
        folder = Path(draft.folder) / SAMPLED
        folder.mkdir()
        write_trajectories(folder, [TWO_TURNS], [])
    assert draft.reference is not None
    assert read_evaluation(draft.reference, SAMPLED) == [TWO_TURNS]
    assert read_evaluation(draft.reference, GREEDY) == []
