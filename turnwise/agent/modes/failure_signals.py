"""Signs that something went wrong in a turn: what makes a plan fail, and what is worth a lesson.

    invalid       the reply could not be read, or held an action that the world refused
    ineffective   no action of the turn changed the world's state
    negative      the world's own rewards of the turn, summed as it gives them, are below a threshold (0 by default)

Worlds that charge a little for every action, as Sokoban does, want a lower threshold: see `agent.mode.negative_below`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.config.agent import Sign
from turnwise.config.agent_rewards import AGENT_REWARDS
from turnwise.data.trajectory import Turn


def trouble(turn: Turn, signs: Sequence[Sign], negative_below: float) -> Sign | None:
    """The first of these signs that an acting turn shows, from the plainest to the faintest; None for no sign."""
    shown: dict[Sign, bool] = {
        "invalid": turn.rewards.get("invalid_turn", 0.0) > 0,
        "ineffective": not turn.effective,
        "negative": _paid(turn) < negative_below,
    }
    return next((sign for sign, is_shown in shown.items() if is_shown and sign in signs), None)


def told(turn: Turn, sign: Sign) -> str:
    """What went wrong, in a few words that name the actions."""
    if not turn.actions:
        return "my reply had no action"
    verdict = {"invalid": "was refused", "ineffective": "changed nothing", "negative": "was punished"}[sign]
    return f"{', '.join(turn.actions)} {verdict}"


def _paid(turn: Turn) -> float:
    return math.fsum(value for name, value in turn.rewards.items() if name not in AGENT_REWARDS)
