"""Environment steps per second of every world, beside the library that it is built on, measured in one process.

A random player's episodes are recorded first, and then only their actions are played again: reset, every step, close.
Ours include what an agent is shown, the text of every observation. The bare library is given the same actions as its
own numbers or words and shows nothing; a ratio of 0.5 means that the text, the rewards and the checks cost as much as
the library itself. Worlds that are our own from the ground up have no library to compare with. Best of three rounds.

    python -m benchmarks.worlds                 all that need no Java and no browser
    python -m benchmarks.worlds sciworld browser
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium

from turnwise import seeding
from turnwise.checking.playing import PlayedEpisode, play
from turnwise.world import World, make_world, with_preset

ROUNDS = 3
EPISODES: Mapping[str, int] = {"sciworld": 3, "browser": 3}
"""Recorded of each world, where it is not the usual number."""
USUAL_EPISODES = 40
LIGHT = ("babyai", "bandit", "frozen_lake", "gymnasium", "mixture", "search", "sokoban", "textcraft", "webshop")
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "mixture": {"parts": {"lake": {"world": "frozen_lake"}, "bandit": {}}},
    "sciworld": {"types": ["find-non-living-thing"], "processes": 1},
    "browser": {"pages": ["miniwob/click-button", "miniwob/focus-text"]},
}
SEED = 0


@dataclass(frozen=True)
class Speed:
    """Of one world: steps per second, ours and the bare library's."""

    world: str
    steps: int
    ours: float
    library: str
    bare: float | None


Player = Callable[[], None]
"""Plays every recorded action once."""


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worlds", description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=LIGHT, help="default: %(default)s")
    names = parser.parse_args(list(arguments)).worlds
    sys.stdout.write(f"steps per second of recorded random episodes, reset and close included, best of {ROUNDS}\n")
    sys.stdout.write(f"{'world':>12} {'steps':>7} {'ours':>10} {'bare':>10} {'ours/bare':>10}  library\n")
    for name in names:
        speed = measure(name)
        bare, ratio = ("", "") if speed.bare is None else (f"{speed.bare:,.0f}", f"{speed.ours / speed.bare:.2f}")
        sys.stdout.write(
            f"{speed.world:>12} {speed.steps:>7,} {speed.ours:>10,.0f} {bare:>10} {ratio:>10}  {speed.library}\n"
        )
        sys.stdout.flush()


def measure(name: str) -> Speed:
    """One world: ours and the bare library, in turns."""
    world = make_world(name, with_preset(name, "", PARAMETERS.get(name, {})))
    tasks = world.tasks("train", EPISODES.get(name, USUAL_EPISODES))
    episodes = [play(world, task, SEED, "random") for task in tasks]
    steps = sum(len(episode.steps) for episode in episodes)
    library, bare = BARE[name](episodes) if name in BARE else ("our own", None)
    players: dict[str, Player] = {"ours": lambda: _play_ours(world, episodes)}
    if bare is not None:
        players["bare"] = bare
    fastest = {one: float("inf") for one in players}
    for _ in range(ROUNDS):
        for one, player in players.items():
            began = time.perf_counter()
            player()
            fastest[one] = min(fastest[one], time.perf_counter() - began)
    return Speed(name, steps, steps / fastest["ours"], library, steps / fastest["bare"] if bare else None)


def _play_ours(world: World, episodes: Sequence[PlayedEpisode]) -> None:
    for episode in episodes:
        with closing(world.make(episode.task, seeding.derive(SEED, "checked episode", episode.task.id))) as environment:
            environment.reset()
            for action in episode.actions:
                environment.step(action)


def _gymnasium_player(identifier: str, actions: Sequence[Sequence[int]], seeds: Sequence[int]) -> Player:
    """The actions by number, without Gymnasium's wrappers; an episode that ends early begins again.

    One environment for all episodes: to make Taxi's takes as long as a hundred of its episodes.
    """
    environment = gymnasium.make(identifier, disable_env_checker=True).unwrapped

    def player() -> None:
        for own, seed in zip(actions, seeds, strict=True):
            environment.reset(seed=seed % 2**31)
            for action in own:
                _, _, terminated, truncated, _ = environment.step(action)
                if terminated or truncated:
                    environment.reset()

    return player


def _numbered(episodes: Sequence[PlayedEpisode], names: Sequence[str]) -> list[list[int]]:
    return [[names.index(action) for action in episode.actions] for episode in episodes]


def _taxi(episodes: Sequence[PlayedEpisode]) -> tuple[str, Player]:
    from envs.gymnasium_text.settings import KNOWN

    numbers = KNOWN["Taxi-v4"].action_values
    actions = [[numbers[action] for action in episode.actions] for episode in episodes]
    seeds = [episode.task.seed for episode in episodes]
    return "gymnasium Taxi-v4", _gymnasium_player("Taxi-v4", actions, seeds)


def _lake(episodes: Sequence[PlayedEpisode]) -> tuple[str, Player]:
    actions = _numbered(episodes, ("Left", "Down", "Right", "Up"))
    seeds = [episode.task.seed for episode in episodes]
    return "gymnasium FrozenLake-v1", _gymnasium_player("FrozenLake-v1", actions, seeds)


def _levels(episodes: Sequence[PlayedEpisode]) -> tuple[str, Player]:
    import minigrid  # noqa: F401  (registers the levels)

    from envs.babyai.episode import ACTIONS

    identifiers = [f"BabyAI-{episode.task.tags['level']}-v0" for episode in episodes]

    def player() -> None:
        for identifier, episode in zip(identifiers, episodes, strict=True):
            with closing(gymnasium.make(identifier, disable_env_checker=True).unwrapped) as environment:
                environment.reset(seed=episode.task.seed % 2**31)
                for action in episode.actions:
                    _, _, terminated, truncated, _ = environment.step(ACTIONS[action])
                    if terminated or truncated:
                        environment.reset()

    return "minigrid", player


def _science(episodes: Sequence[PlayedEpisode]) -> tuple[str, Player]:
    from scienceworld import ScienceWorldEnv

    simulator = ScienceWorldEnv("", envStepLimit=1000)

    def player() -> None:
        for episode in episodes:
            kind, _, number = episode.task.id.partition("/easy/")[2].partition("/")
            simulator.load(kind, int(number), "easy", generateGoldPath=False)
            simulator.reset()
            for action in episode.actions:
                simulator.step(action)

    return "scienceworld", player


BARE: Mapping[str, Callable[[Sequence[PlayedEpisode]], tuple[str, Player]]] = {
    "babyai": _levels,
    "frozen_lake": _lake,
    "gymnasium": _taxi,
    "sciworld": _science,
}
"""What plays the same actions on the bare library."""


if __name__ == "__main__":
    main(sys.argv[1:])
