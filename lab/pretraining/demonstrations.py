"""Demonstrations that base policies may read: those that mention no name which a world withholds from training."""

from __future__ import annotations

from lab.pretraining.withheld_names import WithheldNames
from tasks.playing import the_world, world_code
from tasks.stage import stage
from turnwise.config.schema import Section, WorldSection
from turnwise.data.trajectory_files import read_trajectories, write_trajectories
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store


class FilterParameters(Section):
    """The parameters of the filter."""

    world: WorldSection


@stage("readable_demonstrations", code=world_code)
def readable_demonstrations(parameters: FilterParameters, *, demonstrations: Reference) -> Reference:
    """Keep the demonstrations in which no observation and no reply mentions a withheld name of the world.

    A training task may show such a name: a search lists other cities than the one asked about. Raises
    ConfigurationError where no demonstration is left.
    """
    withheld = WithheldNames(the_world(parameters.world).withheld_names())
    played = read_trajectories(default_store().folder(demonstrations))
    kept = [
        each
        for each in played
        if not any(
            withheld.found_in(text) for turn in each.turns for text in (turn.observation, turn.asked, turn.reply)
        )
    ]
    if not kept:
        raise ConfigurationError(
            f"a demonstration must mention no withheld name of the world {parameters.world.name!r}; all of "
            f"{len(played)} do: play more"
        )
    with default_store().write("demonstrations") as draft:
        write_trajectories(draft.folder, kept)
        draft.metrics["played"] = len(played)
        draft.metrics["kept"] = len(kept)
    return draft.reference
