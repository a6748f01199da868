"""Trajectories are written so that anyone can read them, and come back as they were."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.data.trajectory import Ending, Lost, TokenSequence, Trajectory, Turn, TurnKind
from turnwise.data.trajectory_files import (
    LOST_FILE,
    TRAJECTORIES_FILE,
    TURNS_FILE,
    read_trajectories,
    write_trajectories,
)
from turnwise.errors import ArtifactError
from turnwise.world import SPLITS, Task

texts = st.text(max_size=12)
numbers = st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
tasks = st.builds(
    Task,
    world=texts,
    id=texts,
    split=st.sampled_from(SPLITS),
    seed=st.integers(0, 2**63 - 1),
    tags=st.dictionaries(texts, texts | st.integers(), max_size=3),
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    reply_tokens = draw(token_ids)
    size = len(reply_tokens)
    return Turn(
        observation=draw(texts),
        observation_tokens=draw(token_ids),
        reply=draw(texts),
        reply_tokens=reply_tokens,
        log_probabilities=tuple(draw(st.lists(st.floats(max_value=0, allow_nan=False), min_size=size, max_size=size))),
        thought=draw(texts),
        actions=tuple(draw(st.lists(texts, max_size=3))),
        invalid=draw(st.none() | texts),
        effective=draw(st.booleans()),
        rewards=draw(numbers),
        metrics=draw(numbers),
        state=draw(st.none() | texts),
        trained=draw(st.booleans()),
        kind=draw(st.sampled_from(TurnKind)),
        opens_segment=draw(st.booleans()),
        attempt=draw(st.integers(0, 3)),
        asked=draw(texts),
    )


endings = st.sampled_from([ending for ending in Ending if ending is not Ending.WORLD_LOST])
trajectories = st.builds(
    Trajectory,
    task=tasks,
    group=st.integers(0, 1000),
    replica=st.integers(0, 1000),
    turns=st.lists(turns(), max_size=3).map(tuple),
    ending=endings,
    final_observation=texts,
    earlier_endings=st.lists(endings, max_size=2).map(tuple),
)


def turn(observation: Sequence[int], reply: Sequence[int], **changes: object) -> Turn:
    fields: dict[str, object] = {
        "observation": "seen",
        "observation_tokens": tuple(observation),
        "reply": "said",
        "reply_tokens": tuple(reply),
        "log_probabilities": tuple(-float(token) / 8 for token in reply),
        "thought": "",
        "actions": ("up",),
        "invalid": None,
        "effective": True,
        "rewards": {},
        **changes,
    }
    return Turn(**fields)  # type: ignore[arg-type]


TASK = Task("hill", "hill/train/7", "train", 7, {"hops": 2, "kind": "Zürich"})
TWO_TURNS = Trajectory(
    TASK,
    group=3,
    replica=1,
    turns=(
        turn([10, 11], [1, 2, 3], rewards={"goal": 0.25, "format": 1.0}, metrics={"searches": 2.0}),
        turn([12], [4, 5], rewards={"goal": -1.0}, metrics={"goal": 50.0, "searches": 1.0}, invalid="No.", actions=()),
    ),
    ending=Ending.TURN_LIMIT,
    final_observation="the end",
)


def test_a_trajectory_flattens_to_observation_and_reply_turn_by_turn() -> None:
    (sequence,) = TWO_TURNS.segments()
    assert sequence == TokenSequence(
        tokens=(10, 11, 1, 2, 3, 12, 4, 5),
        turn_of_token=(-1, -1, 0, 0, 0, -1, 1, 1),
        log_probabilities=(0.0, 0.0, -0.125, -0.25, -0.375, 0.0, -0.5, -0.625),
    )
    assert sequence.mask == (0, 0, 1, 1, 1, 0, 1, 1)


def test_each_segment_is_a_sequence_and_turns_are_numbered_through_all() -> None:
    first, second = TWO_TURNS.turns
    told = turn([20, 21, 22], [6], kind=TurnKind.SUMMARY, trained=False)
    opening = turn([30, 31], [7, 8], opens_segment=True)
    trajectory = replace(TWO_TURNS, turns=(first, told, opening, second))
    assert trajectory.segment_turns == (range(0, 2), range(2, 4))
    assert [sequence.tokens for sequence in trajectory.segments()] == [
        (10, 11, 1, 2, 3, 20, 21, 22, 6),
        (30, 31, 7, 8, 12, 4, 5),
    ]
    assert [sequence.turn_of_token for sequence in trajectory.segments()] == [
        (-1, -1, 0, 0, 0, -1, -1, -1, -1),
        (-1, -1, 2, 2, -1, 3, 3),
    ]
    assert trajectory.segments(every_reply=True)[0].turn_of_token == (-1, -1, 0, 0, 0, -1, -1, -1, 1)
    assert [trajectory.count(kind) for kind in (TurnKind.ACT, TurnKind.SUMMARY, TurnKind.PLAN)] == [3, 1, 0]


@given(trajectories)
def test_segments_hold_every_turn_once_and_in_order(trajectory: Trajectory) -> None:
    turns = [index for turns in trajectory.segment_turns for index in turns]
    assert turns == list(range(len(trajectory.turns)))
    tokens = [token for turn in trajectory.turns for token in (*turn.observation_tokens, *turn.reply_tokens)]
    assert [token for sequence in trajectory.segments() for token in sequence.tokens] == tokens
    assert [len(turns) > 0 for turns in trajectory.segment_turns] == [True] * len(trajectory.segments())


def test_no_trajectory_ends_with_a_world_that_was_lost() -> None:
    assert Lost(TASK, 0, 0, "hung").ending is Ending.WORLD_LOST
    with pytest.raises(ValueError, match="must be a Lost"):
        replace(TWO_TURNS, ending=Ending.WORLD_LOST)
    with pytest.raises(ValueError, match="must be a Lost"):
        replace(TWO_TURNS, earlier_endings=(Ending.WORLD_LOST,))


def test_a_total_is_the_sum_over_turns_of_a_reward_or_a_metric() -> None:
    assert TWO_TURNS.total("goal") == -0.75
    assert TWO_TURNS.total("format") == 1.0
    assert TWO_TURNS.total("searches") == 3.0
    assert TWO_TURNS.total("never emitted") == 0.0


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.WORLD_LOST])
def test_only_what_the_world_ended_was_not_cut_off(ending: Ending) -> None:
    trajectory = Trajectory(TASK, 0, 0, (), ending, "")
    assert trajectory.success == (ending.value == "success")
    assert ending.truncated == (ending.value in ("turn_limit", "action_limit", "token_budget"))


@settings(max_examples=40)
@given(st.lists(trajectories, max_size=4))
def test_trajectories_come_back_as_they_were_written(written: list[Trajectory]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_trajectories(Path(name), written)
        assert read_trajectories(Path(name)) == written


@settings(max_examples=20)
@given(st.lists(trajectories, max_size=4))
def test_equal_trajectories_have_equal_bytes_in_whatever_order_rewards_were_emitted(written: list[Trajectory]) -> None:
    reordered = [
        Trajectory(
            each.task,
            each.group,
            each.replica,
            tuple(
                Turn(
                    **{
                        **turn.__dict__,
                        "rewards": dict(reversed(turn.rewards.items())),  # type: ignore[call-overload]
                        "metrics": dict(reversed(turn.metrics.items())),  # type: ignore[call-overload]
                    }
                )
                for turn in each.turns
            ),
            each.ending,
            each.final_observation,
            each.earlier_endings,
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
    lost = [Lost(TASK, 3, 0, "Überlastet: \u2028 'timeout'"), Lost(TASK, 3, 2, "hung")]
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
    with pytest.raises(ArtifactError, match="must have the columns"):
        read_trajectories(tmp_path)
