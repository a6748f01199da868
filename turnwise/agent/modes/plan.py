"""The mode `plan`: the policy writes a plan before it acts, keeps it in the context, and revises it.

The first reply of an attempt is a plan. It is revised after `every` acting turns, and when it failed, that is, when the
last turn showed one of `signs` (by default an invalid reply or action, a turn without effect, a negative reward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.agent.context import Ask
from turnwise.agent.modes.contract import ThoughtfulMode, acting_since
from turnwise.agent.modes.steps import as_many_as_fit
from turnwise.data.trajectory import Ending, Turn, TurnKind

PLAN_WORDS = "Write a plan in one thought, without an action."
REVISE_WORDS = "Revise the plan in one thought, without an action."


@dataclass(frozen=True, kw_only=True)
class PlanMode(ThoughtfulMode):
    """Asks for a plan first, and for a revision every `every` acting turns or when the plan failed."""

    name = "plan"
    kind = TurnKind.PLAN
    instruction = "Before you act you are asked for a plan: the steps that you mean to take. It may be revised."
    every: int | None = None

    def before_acting(self, turns: Sequence[Turn]) -> Ask | None:
        """A plan at the beginning, later a revision when it is due; never two plans without an acting turn between."""
        if not turns:
            return self._ask(PLAN_WORDS)
        acted = acting_since(turns, TurnKind.PLAN)
        is_due = self.every is not None and len(acted) >= self.every
        return self._ask(REVISE_WORDS) if acted and (is_due or self._trouble(acted[-1])) else None

    def demonstrated(self, turns: Sequence[Turn], ending: Ending | None, steps: Sequence[str]) -> str:
        """The next steps, as many as fit."""
        return as_many_as_fit("", steps, self.tokens)
