"""Trajectories: what was seen, what was sampled, what the world said, and how it is stored.

A turn is one reply of the policy. Its tokens are kept exactly as they were sampled, with the behaviour policy's
log-probabilities; nothing is ever decoded and encoded again. As long as the context only grows, a trajectory is one
token sequence

    observation_1 reply_1 observation_2 reply_2 ...

whose mask is 1 on reply tokens only: observation tokens are attended to, never trained on, and never time steps. Where
the context was written anew (a window, a summary, another attempt) another **segment** begins: a sequence of its own,
which opens with the whole of the new context. Each reply is in one segment, after exactly the tokens that it followed
when it was sampled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from turnwise.errors import ArtifactError
from turnwise.world import Task


class Ending(StrEnum):
    """How a trajectory ended: a closed list."""

    SUCCESS = "success"
    """The world says that the task is solved."""
    FAILURE = "failure"
    """The world ended the episode by its own rules, unsolved."""
    TURN_LIMIT = "turn_limit"
    """The agent's limit on turns cut the episode off."""
    ACTION_LIMIT = "action_limit"
    """The limit on actions (the agent's or the world's own) cut the episode off."""
    TOKEN_BUDGET = "token_budget"
    """The next reply might not have fitted into the model's context."""
    INVALID_LIMIT = "invalid_limit"
    """So many replies in a row could not be read, or held an illegal action, that the agent gave up."""
    WORLD_LOST = "world_lost"
    """The world failed. Of a `Lost` alone: no trajectory ends so, since what is missing is not scored."""

    @property
    def truncated(self) -> bool:
        """Whether a limit cut the episode off, so that something was still to come.

        Giving up on replies that nobody can read is not such a limit: it is what the policy's own replies led to, as a
        failure is, and nothing is owed for what might have followed.
        """
        return self in (Ending.TURN_LIMIT, Ending.ACTION_LIMIT, Ending.TOKEN_BUDGET)


class TurnKind(StrEnum):
    """What a reply is for. Only acting replies reach the world, and only they use up the limit on turns."""

    ACT = "act"
    """A thought, and actions for the world."""
    PLAN = "plan"
    """What the policy means to do, written before it acts on it."""
    REFLECT = "reflect"
    """What went wrong, and what to do instead."""
    SUMMARY = "summary"
    """What happened so far, which takes the place of the turns that it tells of."""


@dataclass(frozen=True)
class Turn:
    """One reply, what preceded it in the context, and what came of it."""

    observation: str
    """What the world said since the last reply, as the agent worded it. Empty where the agent asks for something else
    before it shows that, or for something more after it."""
    observation_tokens: tuple[int, ...]
    """The tokens appended to the context since the last reply: the observation with the chat template's frame. Where a
    segment opens, the whole context before the reply."""
    reply: str
    reply_tokens: tuple[int, ...]
    """Exactly as sampled, the end-of-reply token included when it was sampled."""
    log_probabilities: tuple[float, ...]
    """Of the reply's tokens under the distribution they were sampled from (temperature included), in nats."""
    thought: str
    actions: tuple[str, ...]
    """The parsed actions that were played, in the world's grammar; empty when the reply could not be read."""
    invalid: str | None
    """Why the reply could not be read as actions, or None."""
    effective: bool
    """Whether an action of this turn changed the world's state."""
    rewards: Mapping[str, float]
    """Raw rewards by name, summed over the turn's actions; weights and levels are configuration."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    state: str | None = None
    """The anchor of the state in which the reply was made, where the world names one. None for a reply that does not
    act: it is not to be compared with those that do."""
    trained: bool = True
    """Whether the update trains on this reply. One that is replayed, or frozen by configuration, is only context."""
    kind: TurnKind = TurnKind.ACT
    opens_segment: bool = False
    """Whether the context before this reply was written anew. The first turn always opens a segment."""
    attempt: int = 0
    """Which attempt at the task it belongs to, from 0."""
    asked: str = ""
    """What the agent said in words of its own, after the observation, to ask for this reply."""


@dataclass(frozen=True)
class Trajectory:
    """One episode of one task by one policy."""

    task: Task
    group: int
    """Index of the task within its batch: trajectories of one group share the task."""
    replica: int
    """Index within the group."""
    turns: tuple[Turn, ...]
    ending: Ending
    final_observation: str
    """The world's last words, which no reply followed."""
    earlier_endings: tuple[Ending, ...] = ()
    """How the attempts before the last one ended; `ending` is that of the last."""

    def __post_init__(self) -> None:
        if Ending.WORLD_LOST in (self.ending, *self.earlier_endings):
            raise ValueError(
                "an episode whose world was lost must be a Lost: it is missing data, and has no trajectory"
            )

    @property
    def success(self) -> bool:
        """Whether the world said that the task was solved."""
        return self.ending is Ending.SUCCESS

    @property
    def last_attempt(self) -> tuple[Turn, ...]:
        """The turns of the attempt that counts: all of them, where there was one."""
        return tuple(turn for turn in self.turns if turn.attempt == len(self.earlier_endings))

    def total(self, reward: str) -> float:
        """The sum of one named raw reward or metric over the turns of the last attempt."""
        return sum(turn.rewards.get(reward, turn.metrics.get(reward, 0.0)) for turn in self.last_attempt)

    def count(self, kind: TurnKind) -> int:
        """How many turns are of this kind."""
        return sum(turn.kind is kind for turn in self.turns)

    @property
    def segment_turns(self) -> tuple[range, ...]:
        """The turns of each segment, in order."""
        opening = [index for index, turn in enumerate(self.turns) if index == 0 or turn.opens_segment]
        return tuple(range(begin, end) for begin, end in pairwise([*opening, len(self.turns)]))

    def segments(self, *, every_reply: bool = False) -> tuple[TokenSequence, ...]:
        """Each segment as a token sequence; turns are numbered through the whole trajectory.

        Replies that are not trained on count as observations, which are attended to and no more; with `every_reply`
        they are replies like the others.
        """
        return tuple(self._segment(turns, every_reply) for turns in self.segment_turns)

    def _segment(self, turns: range, every_reply: bool) -> TokenSequence:
        tokens: list[int] = []
        turn_of_token: list[int] = []
        log_probabilities: list[float] = []
        for index in turns:
            turn = self.turns[index]
            tokens += [*turn.observation_tokens, *turn.reply_tokens]
            is_reply = turn.trained or every_reply
            turn_of_token += [-1] * len(turn.observation_tokens)
            turn_of_token += [index if is_reply else -1] * len(turn.reply_tokens)
            log_probabilities += [0.0] * len(turn.observation_tokens)
            log_probabilities += turn.log_probabilities if is_reply else [0.0] * len(turn.reply_tokens)
        return TokenSequence(tuple(tokens), tuple(turn_of_token), tuple(log_probabilities))


@dataclass(frozen=True)
class TokenSequence:
    """Tokens with, for each, the turn whose reply it belongs to (-1: observation) and the behaviour log-probability."""

    tokens: tuple[int, ...]
    turn_of_token: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """0.0 at observation tokens."""

    @property
    def mask(self) -> tuple[int, ...]:
        """1 on reply tokens, 0 on observation tokens."""
        return tuple(int(turn >= 0) for turn in self.turn_of_token)


@dataclass(frozen=True)
class Lost:
    """An episode that the world lost: missing data, with the reason. It is counted and never scored."""

    task: Task
    group: int
    replica: int
    reason: str

    @property
    def ending(self) -> Ending:
        """Always `WORLD_LOST`."""
        return Ending.WORLD_LOST


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
    """Write three files into `folder`: one row per trajectory, one row per turn, and the episodes that were lost."""
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
    """The trajectories that `write_trajectories` wrote, equal to those that were given to it.

    Raises ArtifactError for files of another version of this code, which have other columns.
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


def read_lost(folder: Path) -> list[dict[str, Any]]:
    """The episodes that were lost, as rows with task, group, replica and reason."""
    rows: list[dict[str, Any]] = json.loads((folder / LOST_FILE).read_text(encoding="utf-8"))
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
