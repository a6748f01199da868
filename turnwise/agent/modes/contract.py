"""The interface of a mode: which replies the policy is asked for besides acting ones, and when.

A mode is a stateless function of the turns of the current attempt: the same turns give the same request, so a replayed
or resumed episode continues as it did. A plan or a lesson is a turn of its own: it costs tokens, gets credit (no world
rewards it, so its turn reward is 0 and its advantage comes from what follows), and is trained or frozen by
configuration. It does not count towards the turn limit, which counts acting replies.

A thought that could not be read stays in the context but is not carried into later segments. The answer states the
form of a thought, and the policy acts next. It is not asked again at once, so that an episode always ends: between two
thoughts there is always an acting turn.

Papers: planning before acting with revision is the agent of AgentGym-RL (arXiv 2509.08755), which released no code for
it; lessons carried into another attempt at the same task are from Reflexion (arXiv 2303.11366). What differs: there a
model that is never trained writes them; here they are sampled, credited and trained like other replies.

**Failure signals** of an acting turn trigger the revision of a plan, or a lesson:

    invalid       the reply could not be read, or contained an action that the world refused
    ineffective   no action of the turn changed the world's state
    negative      the world's own rewards of the turn, summed without weights, are below a threshold (0 by default)

Worlds with a small cost for every action, such as Sokoban, need a lower threshold: see `agent.mode.negative_below`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnwise.agent.context import Ask
from turnwise.config.agent import AGENT_REWARDS, Sign
from turnwise.data.trajectory import Ending, Turn, TurnKind

ACT_WORDS = "Now act."
"""The request for the acting reply that follows a thought."""


class Mode(ABC):
    """Decides which replies the policy is asked for besides acting ones."""

    name: ClassVar[str]

    @property
    def instruction(self) -> str:
        """The mode's part of the policy's instruction; empty if there is none."""
        return ""

    @abstractmethod
    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """The request that comes before the next acting reply, given the attempt's turns so far; None: no request."""

    def after_failure(self, attempt: int) -> Ask | None:
        """The request after attempt number `attempt` (from 0) has failed; None if there is no further attempt."""
        return None

    def demonstrated(self, turns: Sequence[Turn], ending: Ending | None, steps: Sequence[str]) -> str:
        """A truthful thought for demonstrations: what the turns show, and the next steps of a competent policy.

        `steps` has at least one entry and is cut to the mode's token limit. `ending` is how the attempt has ended; None
        while it goes on. Raises NotImplementedError for a mode that asks for no thought.
        """
        raise NotImplementedError(f"the mode {self.name!r} asks for no thought")


class PlainMode(Mode):
    """The mode in which every reply acts."""

    name = "plain"

    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """None: no request."""
        return None


@dataclass(frozen=True, kw_only=True)
class ThoughtfulMode(Mode):
    """Base of modes that ask for thoughts. Its fields are the options of `agent.mode`, documented there."""

    kind: ClassVar[TurnKind]
    tokens: int
    train_thoughts: bool = True
    signs: tuple[Sign, ...] = ("invalid", "ineffective", "negative")
    negative_below: float = 0.0

    def _ask(self, words: str) -> Ask:
        return Ask(self.kind, self.tokens, words, self.train_thoughts)

    def _trouble(self, turn: Turn) -> Sign | None:
        """The strongest of `signs` that an acting turn shows (order: invalid, ineffective, negative), or None."""
        world_reward = math.fsum(value for name, value in turn.rewards.items() if name not in AGENT_REWARDS)
        signals: dict[Sign, bool] = {
            "invalid": turn.rewards.get("invalid_turn", 0.0) > 0,
            "ineffective": not turn.effective,
            "negative": world_reward < self.negative_below,
        }
        return next((sign for sign, occurs in signals.items() if occurs and sign in self.signs), None)


def words_to_act(turns: Sequence[Turn]) -> str:
    """The request for an acting reply: `ACT_WORDS` after a thought, else empty.

    After a thought it is needed because the observation was already shown before the thought.
    """
    thought = last_but_summaries(turns)
    return ACT_WORDS if thought is not None and thought.kind is not TurnKind.ACT else ""


def last_but_summaries(turns: Sequence[Turn]) -> Turn | None:
    """The last turn that is not a summary."""
    return next((turn for turn in reversed(turns) if turn.kind is not TurnKind.SUMMARY), None)


def acting_since(turns: Sequence[Turn], kind: TurnKind) -> list[Turn]:
    """The acting turns since the last turn of this kind; all of them where there is none."""
    since: list[Turn] = []
    for turn in turns:
        if turn.kind is kind:
            since = []
        elif turn.kind is TurnKind.ACT:
            since.append(turn)
    return since
