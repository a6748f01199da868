"""The rewards that the agent itself emits in every world, in addition to the world's own."""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.world import Reward

AGENT_REWARDS: Mapping[str, Reward] = {
    "format": Reward("share of the episode's replies that could be read, given with the last turn", "outcome", 0.2),
    "invalid_turn": Reward("1 for a turn whose reply could not be read or held an illegal action", "turn", -0.1),
}
