"""The page of a run's episodes: one offline HTML file with filters, and episodes of a task side by side.

Every episode is written into the page once, as escaped text. The page's own script (`templates/episodes.js`) only hides
what the filters exclude and adds no text of episodes. The page's content security policy allows only this script, by
its digest, so no other script runs, whatever an episode contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from turnwise.reporting.data.episodes import OCCASIONS, ShownEpisode, by_task
from turnwise.reporting.formatting import ending
from turnwise.reporting.html.rendering import digest_of_script, render, source
from turnwise.reporting.token_heat_map import largest_advantage
from turnwise.store.atomic_write import write_whole

NO_INSTRUCTIONS: Mapping[str, str] = MappingProxyType({})


def write_episodes(
    title: str, episodes: Sequence[ShownEpisode], count: int, path: Path, instructions: Mapping[str, str]
) -> None:
    """Write the page of `episodes`, a sample of `count` episodes, to `path` with an atomic write.

    `instructions`: what policies were shown before the first observation, each text with their names.
    """
    statement = (
        f"{len(episodes):,} of {count:,} episodes. On the validation and the test task set: the first tasks, each with "
        "one greedy and one sampled episode of every policy. In training: of each batch after which the policy was "
        "evaluated, the first group whose advantages differ. `turnwise show` finds the others."
    )
    write_whole(path, episodes_page(title, statement, episodes, instructions))


def episodes_page(
    title: str, statement: str, episodes: Sequence[ShownEpisode], instructions: Mapping[str, str] = NO_INSTRUCTIONS
) -> str:
    """The page as HTML text. `statement` says what the episodes are a sample of; `instructions` as `write_episodes`."""
    script = source("episodes.js")
    return render(
        "episodes.html.jinja",
        title=title,
        statement=statement,
        instructions=instructions,
        tasks=by_task(episodes),
        choices=_choices(episodes),
        largest_advantage=largest_advantage([episode.sample for episode in episodes]),
        script=script,
        script_digest=digest_of_script(script),
    )


def _choices(episodes: Sequence[ShownEpisode]) -> dict[str, dict[str, str]]:
    """The options of each filter: values of the episodes, each with its text."""

    def themselves(values: Iterable[str]) -> dict[str, str]:
        return {value: value for value in values}

    occasions = {episode.occasion for episode in episodes}
    return {
        "policy": themselves(episode.policy for episode in episodes),
        "occasion": {
            name: f"{name} {'batches' if name == 'training' else 'task set'}" for name in OCCASIONS if name in occasions
        },
        "mode": themselves(episode.mode for episode in episodes),
        "ending": {episode.ending: ending(episode.ending) for episode in episodes},
        "world": themselves(episode.world for episode in episodes),
        "task": themselves(episode.task for episode in episodes),
    }
