"""What a mode is: what the policy is asked for beside acting, and when.

A mode is a function of the turns of the present attempt, and remembers nothing: asked again with the same turns it asks
for the same, so that an episode that is replayed or resumed goes on as it did. What a policy plans or learns is a turn
of its own: it costs tokens, gets credit (no world rewards it, so its turn reward is 0 and its share is that of what
follows), and is trained or frozen by configuration. It uses up none of the limit on turns, which counts replies that
act.

A thought that could not be read stays in the context and is carried nowhere; the policy is told how one is written, and
acts next. It is not asked again at once, so that an episode always ends: between two thoughts lies an acting turn.

From the papers: planning before acting with revision is the agent of AgentGym-RL (arXiv 2509.08755), which released no
code for it; lessons that are carried into another attempt at the same task are Reflexion's (arXiv 2303.11366). What
differs: there a model that is never trained writes them; here they are sampled, credited and trained like the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnwise.agent.context import Ask
from turnwise.agent.modes.failure_signals import trouble
from turnwise.config.agent import Sign
from turnwise.data.trajectory import Ending, Turn, TurnKind

ACT_WORDS = "Now act."
"""What is said before the acting reply that follows a thought."""


class Mode(ABC):
    """What the policy is asked for beside acting."""

    name: ClassVar[str]

    @property
    def instruction(self) -> str:
        """What a policy that is given an instruction is told of this mode; empty where there is nothing to tell."""
        return ""

    @abstractmethod
    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """What is asked for before the next acting reply of an attempt with these turns so far; None: nothing."""

    def after_failure(self, attempt: int) -> Ask | None:
        """What is asked for when this attempt, from 0, has ended without success; None: it is the last one."""
        return None

    def demonstrated(self, turns: Sequence[Turn], ending: Ending | None, steps: Sequence[str]) -> str:
        """A truthful thought: what these turns show, and the steps (at least one) that a competent player takes next.

        `ending` is how the attempt has ended, None within it. Long lists of steps are cut to the mode's tokens.
        """
        raise NotImplementedError(f"the mode {self.name!r} asks for no thought")


class PlainMode(Mode):
    """Every reply acts."""

    name = "plain"

    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """Nothing."""
        return None


@dataclass(frozen=True, kw_only=True)
class ThoughtfulMode(Mode):
    """What modes have in common that ask for thoughts. The fields are the options of `agent.mode`, explained there."""

    kind: ClassVar[TurnKind]
    tokens: int
    train_thoughts: bool = True
    signs: tuple[Sign, ...] = ("invalid", "ineffective", "negative")
    negative_below: float = 0.0

    def _ask(self, words: str) -> Ask:
        return Ask(self.kind, self.tokens, words, self.train_thoughts)

    def _trouble(self, turn: Turn) -> Sign | None:
        return trouble(turn, self.signs, self.negative_below)


def words_to_act(turns: Sequence[Turn]) -> str:
    """What is said before an acting reply. It is something after a thought: the observation was shown before that."""
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
