"""The rewards that the agent itself emits in every world, in addition to the world's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from turnwise.config.quantities import Options
from turnwise.config.schema import RewardSection, Section
from turnwise.world import Reward, World

ALWAYS_GIVEN: Mapping[str, Reward] = {
    "format": Reward("share of the episode's replies that could be read, given with the last turn", "outcome", 0.2),
    "invalid_turn": Reward("1 for a turn whose reply could not be read or held an illegal action", "turn", -0.1),
}
"""Rewards that every episode records, whatever they weigh."""

GIVEN_ON_REQUEST: Mapping[str, Reward] = {
    "tags": Reward("how well replies use the format's tags, from 0 to 1, given with the last turn", "outcome", 0.2),
    "unfinished": Reward("1 for an episode that a limit ended, given with its last turn", "outcome", -1.0),
}
"""Rewards that episodes record where the section `rewards` names them, even with a weight of 0: an experiment that does
not ask for one has the same episodes as if there were none."""

AGENT_REWARDS: Mapping[str, Reward] = {**ALWAYS_GIVEN, **GIVEN_ON_REQUEST}


def requested_rewards(named: Collection[str], world: World) -> tuple[str, ...]:
    """Those of `GIVEN_ON_REQUEST` among the names; a world's reward of the same name is the world's."""
    return tuple(name for name in GIVEN_ON_REQUEST if name in named and name not in world.rewards)


class AddedReward(Section):
    """A reward of one's own, as the stages that play episodes read it: see `turnwise.agent.added_rewards`."""

    function: str
    options: Options


def added_rewards(rewards: Mapping[str, RewardSection]) -> dict[str, AddedReward]:
    """The rewards of one's own, by name: those that have a function."""
    return {
        name: AddedReward(function=section.function, options=section.options)
        for name, section in rewards.items()
        if section.function is not None
    }
