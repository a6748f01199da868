"""Replay: episodes that start at a turn of a recorded trajectory, in the same world state and context.

The world is brought to that state by the same task, seed and actions, through the same code that played them first. Its
observations and rewards on the way must equal the recorded ones; if one differs, the episode is lost (missing data).
The context is the recorded tokens: no reply is ever encoded again, so a continuation is sampled from exactly the state
in which the recorded reply was sampled.

**Future noise is the recorded episode's too**, since a world draws all its noise from the episode's seed. The mean
return of continuations is therefore the value of the state *given this episode's noise*. As a baseline it is unbiased
(an action cannot depend on noise that has not been observed) and has lower variance than a value averaged over the
noise (Mao et al. 2019, arXiv 1807.02264, "input-driven" baselines). In a world without noise it is the state value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.agent.context import ContextMessage
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.config.agent import AGENT_REWARDS
from turnwise.data.trajectory import Trajectory, Turn, TurnKind
from turnwise.errors import WorldLost


@dataclass(frozen=True)
class Point:
    """A state of a recorded trajectory: the one in which the reply of turn `turn` was sampled.

    Raises ValueError for a turn that the trajectory does not have.
    """

    trajectory: Trajectory
    turn: int
    """Index, from 0, of the first turn that is sampled again."""
    seed: int
    """Noise seed of the recorded episode: see `turnwise.agent.loop.episode_seed`."""

    def __post_init__(self) -> None:
        if not 0 <= self.turn < len(self.trajectory.turns):
            raise ValueError(
                f"a point must be a turn of its trajectory, 0 to {len(self.trajectory.turns) - 1}; found {self.turn}"
            )

    @property
    def before(self) -> tuple[Turn, ...]:
        """The recorded turns that are replayed to reach the state."""
        return self.trajectory.turns[: self.turn]

    @property
    def awaited(self) -> Turn:
        """The recorded turn at the point; a fresh reply follows its observation."""
        return self.trajectory.turns[self.turn]

    @property
    def context(self) -> tuple[int, ...]:
        """The recorded tokens that the recorded reply followed: its segment up to and including its observation."""
        (segment,) = (turns for turns in self.trajectory.segment_turns if self.turn in turns)
        earlier = self.trajectory.turns[segment.start : self.turn]
        replayed = [token for turn in earlier for token in (*turn.observation_tokens, *turn.reply_tokens)]
        return (*replayed, *self.awaited.observation_tokens)


def points(trajectory: Trajectory, seed: int, first: int = 0) -> list[Point]:
    """The points of all turns of a trajectory from turn `first` on; `seed` is the noise seed of its episode."""
    return [Point(trajectory, turn, seed) for turn in range(first, len(trajectory.turns))]


class Continuation(Episode):
    """An episode that starts at a point. Its trajectory begins with the recorded turns, which are not trained on."""

    def __init__(self, rules: EpisodeConfig, point: Point, group: int, replica: int) -> None:
        super().__init__(rules, point.trajectory.task, group, replica, point.seed)
        self._point = point

    def open(self) -> None:
        """Replay the recorded turns; afterwards the episode is over (lost) or waits for a reply at the point."""
        super().open()
        for turn in self._point.before:
            if self.over:
                break
            self.receive(turn.reply, turn.reply_tokens, turn.log_probabilities, self._was_complete(turn))
            self.settle()
        if self._lost_episode is None and (difference := self._difference()):
            self.lose(
                WorldLost(
                    "a world must do the same again with the same task, seed and actions; "
                    f"{self.rules.world.name!r} with task {self.task.id!r} did not: {difference}. Give the seed that "
                    "the trajectory was played with, or see `turnwise check`, which looks for worlds that forget "
                    "their seed",
                    "TW-unrepeatable-world",
                )
            )
        self._turns = [replace(turn, trained=False) for turn in self._point.before]
        if self._lost_episode is None:
            awaited = self._point.awaited
            self._message = ContextMessage(awaited.observation_tokens, awaited.opens_segment)
            self._context.tokens = list(self._point.context)

    def _was_complete(self, turn: Turn) -> bool:
        """Whether a recorded reply ended with an end token. Without a frame, replies are scripted and complete."""
        frame = self.rules.frame
        return frame is None or any(turn.reply_tokens[-1:] == (token,) for token in frame.end_tokens)

    def _difference(self) -> str | None:
        """The first difference between the replay and the record, as text; None if there is none."""
        for number, (recorded, replayed) in enumerate(zip(self._point.before, self._turns, strict=False), 1):
            alike = replace(recorded, trained=replayed.trained, observation_tokens=replayed.observation_tokens)
            if replace(alike, rewards=self._paid_again(recorded, replayed)) != replayed:
                return f"turn {number} was recorded as {_world_part(recorded)}, and replayed as {_world_part(replayed)}"
        if self.over:
            return f"it ended in turn {len(self._turns)}, which had not ended it"
        awaited = self._point.awaited
        if awaited.kind is not self._ask.kind:
            return f"turn {self._point.turn + 1} was to {awaited.kind}, and now is to {self._ask.kind}"
        state = self._state if awaited.kind is TurnKind.ACT else None
        if (awaited.observation, awaited.state) != (self._shown_observation, state):
            where = f"before turn {self._point.turn + 1}"
            return f"{where} it had said {awaited.observation!r}, and now said {self._shown_observation!r}"
        return None

    def _paid_again(self, recorded: Turn, replayed: Turn) -> dict[str, float]:
        """The recorded rewards without those of the user's own functions, which are given to whole episodes."""
        paid = {*self.rules.world.rewards, *AGENT_REWARDS, *replayed.rewards}
        return {name: value for name, value in recorded.rewards.items() if name in paid}


def _world_part(turn: Turn) -> str:
    """The world's part of a turn (observation, actions, rewards), for an error message."""
    return f"{turn.observation!r} with {list(turn.actions)} giving {dict(turn.rewards)}"
