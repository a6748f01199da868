"""Demonstrations that base policies may read: those that mention no name which a world withholds from training."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import world_code
from turnwise.agent.playing import the_world
from turnwise.config.schema import Section, WorldSection
from turnwise.data.trajectory_files import read_trajectories, write_trajectories
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, default_store

_WORD = re.compile(r"\w+")


class FilterParameters(Section):
    """The parameters of the filter."""

    world: WorldSection


@task(name="readable_demonstrations", task_run_name="{label}: readable_demonstrations", retries=1)
@depends_on(code=world_code)
def readable_demonstrations(
    parameters: FilterParameters, *, demonstrations: Reference, label: str = "readable_demonstrations"
) -> Reference:
    """Keep the demonstrations in which no observation and no reply mentions a withheld name of the world.

    A training task may show such a name: a search lists other cities than the one asked about. Raises
    ConfigurationError where no demonstration is left.
    """
    withheld = WithheldNames(the_world(parameters.world).withheld_names())
    played = read_trajectories(default_store().folder(demonstrations))
    readable = [
        each
        for each in played
        if not any(
            withheld.found_in(text) for turn in each.turns for text in (turn.observation, turn.asked, turn.reply)
        )
    ]
    if not readable:
        raise ConfigurationError(
            f"a demonstration must mention no withheld name of the world {parameters.world.name!r}; all of "
            f"{len(played)} do: play more",
            "TW-no-demonstration",
        )
    with default_store().write("demonstrations") as draft:
        write_trajectories(draft.folder, readable)
        draft.metrics["played"] = len(played)
        draft.metrics["kept"] = len(readable)
    return draft.reference


class WithheldNames:
    """Names of one or several words, looked for in texts as whole words, with any punctuation between them.

    Case matters: Of is a city, of is not.
    """

    def __init__(self, names: Collection[str]) -> None:
        words = sorted((tuple(_words(name)) for name in names), key=len)
        self._by_length = {length: frozenset(each) for length, each in groupby(words, key=len) if length}

    def found_in(self, text: str) -> bool:
        """Whether the text mentions at least one of the names."""
        words = _words(text)
        return any(
            tuple(words[place : place + length]) in names
            for length, names in self._by_length.items()
            for place in range(len(words) - length + 1)
        )


def _words(text: str) -> list[str]:
    return _WORD.findall(text)
