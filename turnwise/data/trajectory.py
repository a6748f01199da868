"""Trajectories: the observations, sampled replies and rewards of one episode, turn by turn.

A turn is one reply of the policy. Its tokens are kept exactly as they were sampled, with the behaviour policy's
log-probabilities; nothing is ever decoded and tokenized again. As long as the context only grows, a trajectory is one
token sequence

    observation_1 reply_1 observation_2 reply_2 ...

whose mask is 1 on reply tokens only: observation tokens are attended to, never trained on, and never time steps. Where
the context is rewritten (a window, a summary, another attempt), a new **segment** begins: a sequence of its own, which
opens with the whole new context. Each reply is in one segment, after exactly the tokens that it followed when it was
sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

import numpy as np

from turnwise.data.arrays import Ragged, TokenSequence, TrajectoryArrays, offsets_of
from turnwise.world import Task


class Ending(StrEnum):
    """The ways in which an episode can end: a closed list."""

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
    """The agent gave up: `agent.invalid_limit` replies in a row could not be parsed, or held an illegal action."""
    WORLD_LOST = "world_lost"
    """The world failed. Only a `LostEpisode` ends so, never a trajectory, since missing data are not scored."""

    @property
    def truncated(self) -> bool:
        """Whether a limit cut the episode off, so that a critic should bootstrap from the last state.

        INVALID_LIMIT is not truncation: like a failure, it is a consequence of the policy's own replies, and the value
        of what might have followed is 0.
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
    """What happened so far, which replaces the turns that it summarises in the context."""


@dataclass(frozen=True)
class Turn:
    """One reply of the policy, the observation before it, and its consequences in the world."""

    observation: str
    """The world's output since the last reply, as worded by the agent. Empty where the agent asks for something else
    before it shows that output, or for something more after it."""
    observation_tokens: tuple[int, ...]
    """The tokens appended to the context since the last reply: the observation within the chat template. Where a
    segment opens, the whole context before the reply."""
    reply: str
    reply_tokens: tuple[int, ...]
    """Exactly as sampled, including the end-of-reply token if it was sampled."""
    log_probabilities: tuple[float, ...]
    """Behaviour log-probability of each reply token, in nats, under the distribution it was sampled from (temperature
    included)."""
    thought: str = ""
    actions: tuple[str, ...] = ()
    """The parsed actions that were played, in the world's grammar; empty when the reply could not be parsed."""
    invalid: str | None = None
    """Why the reply could not be parsed as actions, or None."""
    effective: bool = True
    """Whether an action of this turn changed the world's state."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Raw rewards by name, summed over the turn's actions; the configuration gives weights and levels."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    state: str | None = None
    """The anchor state in which the reply was made, where the world names one. None for a reply that does not act,
    since it must not be compared with those that do."""
    trained: bool = True
    """Whether the update trains on this reply. A replayed reply, or one frozen by configuration, is only context."""
    kind: TurnKind = TurnKind.ACT
    opens_segment: bool = False
    """Whether the context was rewritten before this reply. The first turn always opens a segment."""
    attempt: int = 0
    """The attempt at the task that the turn belongs to, from 0."""
    asked: str = ""
    """The agent's own prompt for this reply, after the observation."""


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
    """The world's last output, which no reply followed."""
    earlier_endings: tuple[Ending, ...] = ()
    """The endings of the attempts before the last one, in order; `ending` is that of the last."""

    def __post_init__(self) -> None:
        if Ending.WORLD_LOST in (self.ending, *self.earlier_endings):
            raise ValueError(
                "an episode whose world was lost is a LostEpisode: it is missing data, without a trajectory"
            )

    @property
    def success(self) -> bool:
        """Whether the world said that the task was solved (in the last attempt)."""
        return self.ending is Ending.SUCCESS

    @property
    def last_attempt(self) -> tuple[Turn, ...]:
        """The turns of the last attempt, the one that counts: all turns where there was only one attempt."""
        return tuple(turn for turn in self.turns if turn.attempt == len(self.earlier_endings))

    def total(self, reward: str) -> float:
        """The sum of one named raw reward or metric over the turns of the last attempt."""
        return sum(turn.rewards.get(reward, turn.metrics.get(reward, 0.0)) for turn in self.last_attempt)

    def count(self, kind: TurnKind) -> int:
        """The number of turns of this kind, over all attempts."""
        return sum(turn.kind is kind for turn in self.turns)

    @property
    def segment_turns(self) -> tuple[range, ...]:
        """The indices of the turns of each segment, in order."""
        opening = [index for index, turn in enumerate(self.turns) if index == 0 or turn.opens_segment]
        return tuple(range(begin, end) for begin, end in pairwise([*opening, len(self.turns)]))

    def segments(self, *, every_reply: bool = False) -> tuple[TokenSequence, ...]:
        """Each segment as a token sequence; turn numbers are those of the whole trajectory.

        Replies that are not trained on count as observation tokens, which are only attended to; `every_reply=True`
        treats them as replies.
        """
        return tuple(trajectory_arrays([self]).segments(every_reply=every_reply)[0])


@dataclass(frozen=True)
class LostEpisode:
    """An episode whose world failed: missing data, with the reason. It is counted and never scored."""

    task: Task
    group: int
    replica: int
    reason: str

    @property
    def ending(self) -> Ending:
        """Always `WORLD_LOST`."""
        return Ending.WORLD_LOST


def trajectory_arrays(trajectories: Sequence[Trajectory]) -> TrajectoryArrays:
    """The rewards and tokens of these trajectories as arrays, with one row per turn."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    names = sorted({name for turn in turns for name in turn.rewards})
    is_last = [turn.attempt == len(each.earlier_endings) for each in trajectories for turn in each.turns]
    return TrajectoryArrays(
        group=np.array([trajectory.group for trajectory in trajectories], dtype=np.int64),
        replica=np.array([trajectory.replica for trajectory in trajectories], dtype=np.int64),
        truncated=np.array([trajectory.ending.truncated for trajectory in trajectories], dtype=bool),
        offsets=offsets_of([len(trajectory.turns) for trajectory in trajectories]),
        rewards={name: np.array([turn.rewards.get(name, 0.0) for turn in turns], dtype=np.float64) for name in names},
        last_attempt=np.array(is_last, dtype=bool),
        acts=np.array([turn.kind is TurnKind.ACT for turn in turns], dtype=bool),
        states=np.array([turn.state for turn in turns], dtype=object),
        trained=np.array([turn.trained for turn in turns], dtype=bool),
        opens_segment=np.array([turn.opens_segment for turn in turns], dtype=bool),
        observation_tokens=Ragged.of((turn.observation_tokens for turn in turns), np.int32),
        reply_tokens=Ragged.of((turn.reply_tokens for turn in turns), np.int32),
        log_probabilities=Ragged.of(turn.log_probabilities for turn in turns),
    )
