"""The files of a rollout and of its credit: Parquet tables that any tool can read.

A rollout has two, with one row per trajectory and one row per turn. Tokens and log-probabilities are read back bit for
bit, so that training sees what was sampled. Lost episodes, which have no turns, are in a JSON file next to them.

The table of credit has one row per turn of the trajectories that are trained on:

    trajectory, group, turn             which turn it is
    turn_reward, outcome                its weighted reward, and that of its trajectory
    advantage                           of the turn
    token_advantages, value_targets     one number per reply token, where tokens have them; else null
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from turnwise.data.arrays import Advantages, Numbers, Ragged, TrajectoryAdvantages, TrajectoryArrays, offsets_of
from turnwise.data.trajectory import Ending, LostEpisode, Trajectory, Turn, TurnKind, trajectory_arrays
from turnwise.errors import ArtifactError
from turnwise.store import Reference, default_store
from turnwise.world import Task

TRAJECTORIES = "trajectories 1"
"""The layout of these files. It is in the cache key of who writes them: a changed layout gets another number."""
GREEDY, SAMPLED = "greedy", "sampled"
"""The folders of an evaluation, by the way in which replies were chosen."""
TRAJECTORIES_FILE = "trajectories.parquet"
TURNS_FILE = "turns.parquet"
LOST_FILE = "lost.json"
CREDIT = "credit 1"
"""The layout of the table of credit, likewise."""
CREDIT_FILE = "credit.parquet"

_NUMBER_MAP = pa.map_(pa.string(), pa.float64())
_TRAJECTORY_SCHEMA = pa.schema(
    [
        ("trajectory", pa.int32()),
        ("group", pa.int32()),
        ("replica", pa.int32()),
        ("world", pa.string()),
        ("task", pa.string()),
        ("split", pa.string()),
        ("task_seed", pa.int64()),
        ("tags", pa.string()),
        ("ending", pa.string()),
        ("success", pa.bool_()),
        ("turns", pa.int32()),
        ("final_observation", pa.string()),
        ("earlier_endings", pa.list_(pa.string())),
    ]
)
_TURN_SCHEMA = pa.schema(
    [
        ("trajectory", pa.int32()),
        ("turn", pa.int32()),
        ("kind", pa.string()),
        ("attempt", pa.int32()),
        ("opens_segment", pa.bool_()),
        ("observation", pa.string()),
        ("asked", pa.string()),
        ("reply", pa.string()),
        ("thought", pa.string()),
        ("actions", pa.list_(pa.string())),
        ("invalid", pa.string()),
        ("effective", pa.bool_()),
        ("state", pa.string()),
        ("trained", pa.bool_()),
        ("rewards", _NUMBER_MAP),
        ("metrics", _NUMBER_MAP),
        ("observation_tokens", pa.list_(pa.int32())),
        ("reply_tokens", pa.list_(pa.int32())),
        ("log_probabilities", pa.list_(pa.float64())),
    ]
)
_AS_THEY_ARE = (
    *("attempt", "opens_segment", "observation", "asked", "reply", "thought", "actions", "invalid", "effective"),
    *("state", "trained"),
)
"""The fields of a turn that its table has unchanged."""
_TRUNCATED = [ending.value for ending in Ending if ending.truncated]
PER_TOKEN = ("observation_tokens", "reply_tokens", "log_probabilities")
"""The columns of the table of turns that have a list per turn, in the order of `TrajectoryArrays`."""


def write_trajectories(
    folder: Path, trajectories: Sequence[Trajectory], lost_episodes: Sequence[LostEpisode] = ()
) -> None:
    """Write three files into `folder`: the table of trajectories, the table of turns, and the lost episodes."""
    parquet.write_table(_trajectory_table(trajectories), folder / TRAJECTORIES_FILE)
    parquet.write_table(_turn_table(trajectories), folder / TURNS_FILE)
    rows = [
        {"task": loss.task.id, "group": loss.group, "replica": loss.replica, "reason": loss.reason}
        for loss in lost_episodes
    ]
    (folder / LOST_FILE).write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")


def _trajectory_table(trajectories: Sequence[Trajectory]) -> pa.Table:
    columns: dict[str, Any] = {
        "trajectory": range(len(trajectories)),
        "group": [each.group for each in trajectories],
        "replica": [each.replica for each in trajectories],
        "world": [each.task.world for each in trajectories],
        "task": [each.task.id for each in trajectories],
        "split": [each.task.split for each in trajectories],
        "task_seed": [each.task.seed for each in trajectories],
        "tags": [json.dumps(dict(each.task.tags), sort_keys=True) for each in trajectories],
        "ending": [each.ending.value for each in trajectories],
        "success": [each.success for each in trajectories],
        "turns": [len(each.turns) for each in trajectories],
        "final_observation": [each.final_observation for each in trajectories],
        "earlier_endings": [[ending.value for ending in each.earlier_endings] for each in trajectories],
    }
    return pa.table(columns, schema=_TRAJECTORY_SCHEMA)


def _turn_table(trajectories: Sequence[Trajectory]) -> pa.Table:
    turns = [turn for each in trajectories for turn in each.turns]
    arrays = trajectory_arrays(trajectories)
    columns: dict[str, Any] = {
        "trajectory": [index for index, each in enumerate(trajectories) for _ in each.turns],
        "turn": [number for each in trajectories for number in range(len(each.turns))],
        "kind": [turn.kind.value for turn in turns],
        **{name: [getattr(turn, name) for turn in turns] for name in _AS_THEY_ARE},
        "rewards": [sorted(turn.rewards.items()) for turn in turns],
        "metrics": [sorted(turn.metrics.items()) for turn in turns],
        "observation_tokens": list_column(arrays.observation_tokens),
        "reply_tokens": list_column(arrays.reply_tokens),
        "log_probabilities": list_column(arrays.log_probabilities),
    }
    return pa.table(columns, schema=_TURN_SCHEMA)


def list_column(rows: Ragged) -> pa.ListArray:
    """The rows as a column of lists, for a Parquet table."""
    return pa.ListArray.from_arrays(rows.offsets.astype(np.int32), rows.values)


def rows_of_column(column: pa.ChunkedArray) -> Ragged:
    """The lists of a column without nulls, as one flat array."""
    lists = column.combine_chunks()
    lengths = np.from_dlpack(compute.list_value_length(lists)).astype(np.int64)
    return Ragged.with_lengths(np.from_dlpack(lists.flatten()), lengths)


def numbers_of_column(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers, or truth values, of a column without nulls.

    Not by `to_numpy`, for which pyarrow imports pandas: half a second.
    """
    array = column.combine_chunks()
    if pa.types.is_boolean(array.type):
        return np.from_dlpack(array.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(array)


def read_trajectories(folder: Path) -> list[Trajectory]:
    """The trajectories that `write_trajectories` wrote into `folder`, equal to those that it was given.

    Raises ArtifactError for files that lack a column, written by another version of this code.
    """
    table = _read(folder / TURNS_FILE, _TURN_SCHEMA.names)
    tokens = (map(tuple, rows_of_column(table[name]).tolist()) for name in PER_TOKEN)
    rows = table.drop_columns(list(PER_TOKEN)).to_pylist()
    turns: dict[int, list[Turn]] = {}
    for row, *per_token in zip(rows, *tokens, strict=True):
        turns.setdefault(row["trajectory"], []).append(_turn(row, per_token))
    rows = _read(folder / TRAJECTORIES_FILE, _TRAJECTORY_SCHEMA.names).to_pylist()
    return [_trajectory(row, tuple(turns.get(row["trajectory"], ()))) for row in rows]


def read_evaluation(reference: Reference, mode: str) -> list[Trajectory]:
    """The trajectories of an evaluation's `greedy` or `sampled` episodes; empty where it has none of that mode."""
    folder = default_store().folder(reference) / mode
    return read_trajectories(folder) if folder.is_dir() else []


def success_of(evaluation: Reference) -> float:
    """The mean success of an evaluation's sampled episodes."""
    return default_store().metrics(evaluation)[f"{SAMPLED}/success"]


def read_arrays(folder: Path) -> TrajectoryArrays:
    """The rewards and tokens of all trajectories in `folder` as arrays: all that credit and an update read.

    Equal to `trajectory_arrays` of what `read_trajectories` reads. Raises ArtifactError as it does.
    """
    trajectories = _read(folder / TRAJECTORIES_FILE, ["group", "replica", "ending", "earlier_endings"])
    columns = ["trajectory", "rewards", "attempt", "kind", "state", "trained", "opens_segment"]
    turns = _read(folder / TURNS_FILE, [*columns, *PER_TOKEN])
    owner = numbers_of_column(turns["trajectory"])
    last = numbers_of_column(compute.list_value_length(trajectories["earlier_endings"]))
    return TrajectoryArrays(
        numbers_of_column(trajectories["group"]).astype(np.int64),
        numbers_of_column(trajectories["replica"]).astype(np.int64),
        numbers_of_column(compute.is_in(trajectories["ending"], pa.array(_TRUNCATED))),
        offsets_of(np.bincount(owner, minlength=len(trajectories))),
        _rewards_of_column(turns["rewards"]),
        numbers_of_column(turns["attempt"]) == last[owner],
        numbers_of_column(compute.equal(turns["kind"], TurnKind.ACT.value)),
        np.array(turns["state"].to_pylist(), dtype=object),
        numbers_of_column(turns["trained"]),
        numbers_of_column(turns["opens_segment"]),
        *(rows_of_column(turns[name]) for name in PER_TOKEN),
    )


def write_credit(
    folder: Path,
    advantages: Advantages,
    *,
    group: Sequence[int],
    turn_rewards: Ragged,
    outcome: Sequence[float],
    reply_lengths: Ragged,
) -> None:
    """Write the table of credit into `folder`: one row per turn, a list per reply token where there are any.

    All are aligned with `advantages.trajectories`: the group and the weighted outcome of each trajectory, and one row
    per trajectory with the weighted rewards and the reply lengths of its turns.
    """
    turns = turn_rewards.lengths
    columns: dict[str, Any] = {
        "trajectory": np.repeat(advantages.trajectories, turns).astype(np.int32),
        "group": np.repeat(np.array(group, dtype=np.int32), turns),
        "turn": np.concatenate([np.arange(0), *map(np.arange, turns)]).astype(np.int32),
        "turn_reward": turn_rewards.values,
        "outcome": np.repeat(np.array(outcome, dtype=np.float64), turns),
        "advantage": advantages.turns.values,
    }
    ends = offsets_of(reply_lengths.values)
    for name, rows in (("token_advantages", advantages.tokens), ("value_targets", advantages.value_targets)):
        lists = None if rows is None else list_column(Ragged(rows.values, ends))
        columns[name] = pa.nulls(int(turns.sum()), pa.list_(pa.float64())) if lists is None else lists
    parquet.write_table(pa.table(columns), folder / CREDIT_FILE)


def read_advantages(folder: Path) -> Advantages:
    """The advantages of a rollout's trajectories, as arrays, from the folder that `write_credit` wrote into."""
    table = parquet.ParquetFile(folder / CREDIT_FILE).read()
    trajectories, turns = np.unique(numbers_of_column(table["trajectory"]), return_counts=True)
    offsets = offsets_of(turns)

    def read_token_rows(name: str) -> Ragged | None:
        if table[name].null_count == len(table):
            return None
        lists = rows_of_column(table[name])
        return Ragged(lists.values, lists.offsets[offsets])

    return Advantages(
        trajectories.astype(np.int64),
        Ragged(numbers_of_column(table["advantage"]), offsets),
        read_token_rows("token_advantages"),
        read_token_rows("value_targets"),
    )


def read_credit(reference: Reference) -> dict[int, TrajectoryAdvantages]:
    """The advantages of each trajectory that has any, by its index in the rollout: for whoever shows them."""
    return read_advantages(default_store().folder(reference)).by_trajectory()


def _rewards_of_column(column: pa.ChunkedArray) -> dict[str, Numbers]:
    """By name, in order, the reward of each turn: 0 where a turn has none of that name."""
    maps = column.combine_chunks()
    lengths = np.diff(np.from_dlpack(maps.offsets))
    turn = np.repeat(np.arange(len(maps)), lengths)
    names, values = np.array(maps.keys.to_pylist(), dtype=object), np.from_dlpack(maps.items)
    rewards = {name: np.zeros(len(maps)) for name in sorted({*names})}
    for name, turn_rewards in rewards.items():
        is_named = names == np.array(name, dtype=object)  # a bare text would lose the NUL characters at its end
        turn_rewards[turn[is_named]] = values[is_named]
    return rewards


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    # Not `read_table`: that reads data sets of many files and imports pandas for them, half a second.
    file = parquet.ParquetFile(path)
    present = file.schema_arrow.names
    if missing := [name for name in columns if name not in present]:
        raise ArtifactError(
            f"{path} must have the columns {', '.join(missing)} and has not: another version of Turnwise wrote it. Run "
            "the experiment again with this one, or check out the commit that its run names",
            "TW-other-version",
        )
    return file.read(list(columns))


def _turn(row: Mapping[str, Any], per_token: Iterable[tuple[Any, ...]]) -> Turn:
    """A turn, whose fields a row has, but for those per token, which are in the order of `PER_TOKEN`."""
    fields: dict[str, Any] = {**row, **dict(zip(PER_TOKEN, per_token, strict=True))}
    del fields["trajectory"], fields["turn"]
    fields |= {"kind": TurnKind(row["kind"]), "actions": tuple(row["actions"])}
    fields |= {"rewards": dict(row["rewards"]), "metrics": dict(row["metrics"])}
    return Turn(**fields)


def _trajectory(row: Mapping[str, Any], turns: tuple[Turn, ...]) -> Trajectory:
    task = Task(row["world"], row["task"], row["split"], row["task_seed"], json.loads(row["tags"]))
    return Trajectory(
        task,
        row["group"],
        row["replica"],
        turns,
        Ending(row["ending"]),
        row["final_observation"],
        tuple(Ending(ending) for ending in row["earlier_endings"]),
    )
