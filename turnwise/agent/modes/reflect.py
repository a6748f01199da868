"""The mode `reflect`: after an error the policy writes a lesson, which stays in its context.

Within an attempt a lesson is requested after a turn that showed one of `signs` (by default an invalid reply or action,
or a negative reward); it is kept for the rest of this attempt and for the next ones. After an attempt that ended
without success, with attempts left, a lesson is requested and the task starts again: the same task and seed in a fresh
environment, with the full turn limit, in a context that opens with the lessons.

**Metrics.** `success`, the outcome rewards and the world's metrics are those of the last attempt; turn rewards stay
with their turns in every attempt; turns and tokens of all attempts are counted. `first_success` is success at the first
attempt. The task is not attempted again if an attempt exhausted the token budget, or if the lesson would not fit into
the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.agent.context import Ask
from turnwise.agent.modes.contract import ThoughtfulMode, last_but_summaries
from turnwise.agent.modes.steps import as_many_as_fit
from turnwise.config.agent import Sign
from turnwise.data.trajectory import Ending, Turn, TurnKind

REFLECT_WORDS = "Write in one thought, without an action, what went wrong and what to do instead."
AFTER_FAILURE_WORDS = "The attempt failed. Write in one thought, without an action, what to do in the next one."


@dataclass(frozen=True, kw_only=True)
class ReflectMode(ThoughtfulMode):
    """Asks for lessons after errors, and lets a failed task be attempted again."""

    name = "reflect"
    kind = TurnKind.REFLECT
    signs: tuple[Sign, ...] = ("invalid", "negative")
    attempts: int = 1

    @property
    def instruction(self) -> str:
        """Tells the policy what a lesson is for."""
        retry_sentence = " A task that you failed begins again, with your lessons." if self.attempts > 1 else ""
        return f"After an error you are asked for a lesson: what went wrong, and what to do instead.{retry_sentence}"

    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """A lesson, if the last turn (summaries ignored) acted and showed a failure signal."""
        last = last_but_summaries(turns)
        if last is None or last.kind is not TurnKind.ACT or self._trouble(last) is None:
            return None
        return self._ask(REFLECT_WORDS)

    def after_failure(self, attempt: int) -> Ask | None:
        """A lesson, if attempts are left."""
        return self._ask(AFTER_FAILURE_WORDS) if attempt + 1 < self.attempts else None

    def demonstrated(self, turns: Sequence[Turn], ending: Ending | None, steps: Sequence[str]) -> str:
        """What went wrong, then the next steps, as many as fit."""
        acted = [turn for turn in turns if turn.kind is TurnKind.ACT]
        mistake = self._wrong_in(acted[-1]) if ending is None else _wrong_at_the_end(acted, ending)
        return as_many_as_fit(f"{mistake}; ", steps, self.tokens)

    def _wrong_in(self, turn: Turn) -> str:
        """What went wrong in a turn that showed a failure signal, naming its actions."""
        sign = self._trouble(turn)
        assert sign is not None, "a lesson is asked for after a sign of trouble"
        if not turn.actions:
            return "my reply had no action"
        verdict = {"invalid": "was refused", "ineffective": "changed nothing", "negative": "was punished"}[sign]
        return f"{', '.join(turn.actions)} {verdict}"


def _wrong_at_the_end(acted: Sequence[Turn], ending: Ending) -> str:
    """Why a failed attempt ended: the last actions, if the world ended it, or that a limit was reached."""
    if ending is Ending.FAILURE and acted and acted[-1].actions:
        return f"{', '.join(acted[-1].actions)} failed"
    return "the limit came first"
