"""Checks of a configuration against its world: what is compared by, and the rewards that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config.agent import AGENT_REWARDS, Agent, requested_rewards
from turnwise.config.schema import RewardSection, WorldSection
from turnwise.errors import ConfigurationError
from turnwise.suggestions import unknown
from turnwise.world import World, world_class


def missing_files(section: WorldSection) -> dict[str, Path]:
    """The files and folders that the world's parameters name and that are not there, by the parameter's dotted key."""
    paths = world_class(section.name).files(section.parameters)
    return {key: path for key, path in paths.items() if path is not None and not path.exists()}


def require_files(section: WorldSection) -> None:
    """Raise ConfigurationError for a file or folder of the world that is not there."""
    for key, path in missing_files(section).items():
        raise ConfigurationError(
            f"world.parameters.{key}: must be the path of a file or folder; found nothing at {path}", "TW-missing-file"
        )


def require_examples(agent: Agent, world: World) -> None:
    """Raise ConfigurationError for worked examples in a world that nobody demonstrates."""
    if agent.examples and "oracle" not in world.baselines:
        raise ConfigurationError(
            f"agent.examples are played by the world's oracle; the world {world.name!r} has none, its baselines are "
            f"{', '.join(world.baselines) or 'none'}; found {agent.examples}: set it to 0",
            "TW-no-oracle",
        )


def require_primary_column(world: World) -> None:
    """Raise ConfigurationError unless the world's columns show what variants are compared by, and higher is better."""
    column = next((column for column in world.columns if column.value == world.primary_metric), None)
    if column is None:
        raise ConfigurationError(
            f"a world's columns must show its primary metric, by which variants are compared; {world.name!r} has "
            f"{world.primary_metric!r} and shows {', '.join(column.value for column in world.columns)}",
            "TW-hidden-metric",
        )
    if column.better == "lower":
        raise ConfigurationError(
            f"higher values of a world's primary metric must be better; those of {world.primary_metric!r} in "
            f"{world.name!r} are worse: compare by its negative",
            "TW-lower-metric",
        )


def require_rewards(rewards: Mapping[str, RewardSection], world: World, tags: Sequence[str]) -> None:
    """Raise ConfigurationError for a reward that neither world nor agent gives, and unless one of them counts.

    `tags` are those of the reply format: without any there is nothing to reward.
    """
    known = {**world.rewards, **AGENT_REWARDS}
    for name, reward in rewards.items():
        if reward.function is None and name not in known:
            raise ConfigurationError(
                f"rewards of the world {world.name!r}: {unknown(name, known)}", "TW-unknown-reward"
            )
    if "tags" in requested_rewards(rewards, world) and not tags:
        raise ConfigurationError(
            "rewards.tags must be left out with an agent.format whose replies have no tags; found both: leave it out, "
            "or set agent.format to think-answer or search",
            "TW-tags-without-format",
        )
    if not any(reward.weight for reward in rewards.values()):
        raise ConfigurationError(
            "rewards must give at least one reward a weight other than 0; found none", "TW-no-reward"
        )
