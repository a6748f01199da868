"""What an episode adds up: the world's rewards and metrics of a turn, and the agent's rewards of the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from turnwise.agent.formats.tags import tag_use
from turnwise.data.trajectory import Ending, Turn
from turnwise.world import Step


def summed(mappings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each name over several mappings, in order of first occurrence."""
    total: dict[str, float] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total


def paid_for(steps: Sequence[Step]) -> float:
    """The sum of all that the world paid for the actions of a turn, unweighted."""
    return math.fsum(value for step in steps for value in step.rewards.values())


def rewards_of_whole(
    turns: Sequence[Turn], ending: Ending, further: Sequence[str], tags: Sequence[str]
) -> dict[str, float]:
    """The agent's rewards of a whole episode of at least one turn: see `turnwise.config.agent`.

    `further` names those that are recorded on request; `tags` are the format's.
    """
    rewards = {"format": sum(turn.invalid is None for turn in turns) / len(turns)}
    if "tags" in further:
        rewards["tags"] = sum(tag_use(turn.reply, tags) for turn in turns) / len(turns)
    if "unfinished" in further:
        rewards["unfinished"] = float(ending not in (Ending.SUCCESS, Ending.FAILURE))
    return rewards
