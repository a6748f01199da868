"""Trajectory files: two Parquet tables that any tool can read, with one row per trajectory and one row per turn.

Tokens and log-probabilities are read back bit for bit, so that training sees what was sampled. Lost episodes, which
have no turns, are in a JSON file next to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from turnwise.data.trajectory import Ending, Lost, Trajectory, Turn, TurnKind
from turnwise.errors import ArtifactError
from turnwise.world import Task

TRAJECTORIES_FILE = "trajectories.parquet"
TURNS_FILE = "turns.parquet"
LOST_FILE = "lost.json"

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


def write_trajectories(folder: Path, trajectories: Sequence[Trajectory], lost: Sequence[Lost] = ()) -> None:
    """Write three files into `folder`: the table of trajectories, the table of turns, and the lost episodes."""
    parquet.write_table(_trajectory_table(trajectories), folder / TRAJECTORIES_FILE)
    parquet.write_table(_turn_table(trajectories), folder / TURNS_FILE)
    rows = [
        {"task": loss.task.id, "group": loss.group, "replica": loss.replica, "reason": loss.reason} for loss in lost
    ]
    (folder / LOST_FILE).write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")


def _trajectory_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    rows = [
        {
            "trajectory": index,
            "group": trajectory.group,
            "replica": trajectory.replica,
            "world": trajectory.task.world,
            "task": trajectory.task.id,
            "split": trajectory.task.split,
            "task_seed": trajectory.task.seed,
            "tags": json.dumps(dict(trajectory.task.tags), sort_keys=True),
            "ending": trajectory.ending.value,
            "success": trajectory.success,
            "turns": len(trajectory.turns),
            "final_observation": trajectory.final_observation,
            "earlier_endings": [ending.value for ending in trajectory.earlier_endings],
        }
        for index, trajectory in enumerate(trajectories)
    ]
    return pa.Table.from_pylist(rows, schema=_TRAJECTORY_SCHEMA)


def _turn_table(trajectories: Iterable[Trajectory]) -> pa.Table:
    rows = [
        {
            "trajectory": index,
            "turn": number,
            "kind": turn.kind.value,
            "attempt": turn.attempt,
            "opens_segment": turn.opens_segment,
            "observation": turn.observation,
            "asked": turn.asked,
            "reply": turn.reply,
            "thought": turn.thought,
            "actions": list(turn.actions),
            "invalid": turn.invalid,
            "effective": turn.effective,
            "state": turn.state,
            "trained": turn.trained,
            "rewards": sorted(turn.rewards.items()),
            "metrics": sorted(turn.metrics.items()),
            "observation_tokens": list(turn.observation_tokens),
            "reply_tokens": list(turn.reply_tokens),
            "log_probabilities": list(turn.log_probabilities),
        }
        for index, trajectory in enumerate(trajectories)
        for number, turn in enumerate(trajectory.turns)
    ]
    return pa.Table.from_pylist(rows, schema=_TURN_SCHEMA)


def read_trajectories(folder: Path) -> list[Trajectory]:
    """The trajectories that `write_trajectories` wrote into `folder`, equal to those that it was given.

    Raises ArtifactError for files that lack a column, written by another version of this code.
    """
    turns: dict[int, list[Turn]] = {}
    for row in _rows(folder / TURNS_FILE, _TURN_SCHEMA):
        turns.setdefault(row["trajectory"], []).append(_turn(row))
    rows = _rows(folder / TRAJECTORIES_FILE, _TRAJECTORY_SCHEMA)
    return [_trajectory(row, tuple(turns.get(row["trajectory"], ()))) for row in rows]


def _rows(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    table = parquet.read_table(path)
    if missing := [name for name in schema.names if name not in table.column_names]:
        raise ArtifactError(
            f"{path} must have the columns {', '.join(missing)} and has not: another version of Turnwise wrote it. Run "
            "the experiment again with this one, or check out the commit that its run names"
        )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _turn(row: Mapping[str, Any]) -> Turn:
    return Turn(
        observation=row["observation"],
        observation_tokens=tuple(row["observation_tokens"]),
        reply=row["reply"],
        reply_tokens=tuple(row["reply_tokens"]),
        log_probabilities=tuple(row["log_probabilities"]),
        thought=row["thought"],
        actions=tuple(row["actions"]),
        invalid=row["invalid"],
        effective=row["effective"],
        rewards=dict(row["rewards"]),
        metrics=dict(row["metrics"]),
        state=row["state"],
        trained=row["trained"],
        kind=TurnKind(row["kind"]),
        opens_segment=row["opens_segment"],
        attempt=row["attempt"],
        asked=row["asked"],
    )


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
