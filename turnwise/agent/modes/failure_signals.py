"""Failure signals of a turn: they trigger the revision of a plan, or a lesson.

    invalid       the reply could not be read, or contained an action that the world refused
    ineffective   no action of the turn changed the world's state
    negative      the world's own rewards of the turn, summed without weights, are below a threshold (0 by default)

Worlds with a small cost for every action, such as Sokoban, need a lower threshold: see `agent.mode.negative_below`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.config.agent import Sign
from turnwise.config.agent_rewards import AGENT_REWARDS
from turnwise.data.trajectory import Turn


def trouble(turn: Turn, signs: Sequence[Sign], negative_below: float) -> Sign | None:
    """The strongest of `signs` that an acting turn shows (order: invalid, ineffective, negative), or None."""
    shown: dict[Sign, bool] = {
        "invalid": turn.rewards.get("invalid_turn", 0.0) > 0,
        "ineffective": not turn.effective,
        "negative": _paid(turn) < negative_below,
    }
    return next((sign for sign, is_shown in shown.items() if is_shown and sign in signs), None)


def told(turn: Turn, sign: Sign) -> str:
    """A short description of what went wrong in the turn, naming its actions."""
    if not turn.actions:
        return "my reply had no action"
    verdict = {"invalid": "was refused", "ineffective": "changed nothing", "negative": "was punished"}[sign]
    return f"{', '.join(turn.actions)} {verdict}"


def _paid(turn: Turn) -> float:
    return math.fsum(value for name, value in turn.rewards.items() if name not in AGENT_REWARDS)
