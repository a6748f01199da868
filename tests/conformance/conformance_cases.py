"""What the conformance suite must know of single worlds: parameters, servers, how much to play, what rewards sum to,
and where a text lists the actions that are possible.

A world that is installed and not named here is examined with its defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from turnwise.checking.playing import PlayedEpisode
from turnwise.world import World, make_world


@dataclass(frozen=True)
class Effort:
    """How much of a world is played. The heavy ones, whose episodes take from 10 ms to seconds, are played less."""

    tasks: int = 20
    """Per split, by the public checker."""
    sample: int = 3
    """Of them, those whose whole episodes it compares."""
    random_episodes: int = 5000
    opened: int = 30
    """Episodes that are opened and closed in a row."""
    near_misses: bool = True
    """Whether an agent's strange replies are also an action with a character replaced: many of them are one, too, and
    each of these costs an episode."""


EFFORT: Mapping[str, Effort] = {
    "agentgym": Effort(tasks=3, random_episodes=60),
    "babyai": Effort(random_episodes=300),
    "browser": Effort(tasks=2, sample=1, random_episodes=8, opened=3, near_misses=False),
    "frozen_lake": Effort(random_episodes=2000),
    "gymnasium": Effort(random_episodes=1000),
    "mixture": Effort(random_episodes=1000),
    "openenv": Effort(tasks=3, random_episodes=60),
    "remote": Effort(random_episodes=60),
    "sciworld": Effort(tasks=2, sample=1, random_episodes=6, opened=3),
    "sokoban": Effort(random_episodes=2000),
    "textcraft": Effort(random_episodes=600),
    "webshop": Effort(random_episodes=1000),
}

OF_OTHER_PROGRAMS = ("agentgym", "browser", "mcp", "openenv", "remote", "sciworld", "webarena")
"""The worlds whose episodes are played in a server, a browser or a simulator."""

NEEDED: Mapping[str, str] = {"browser": "chromium", "sciworld": "java"}
"""The program that a world is played in, by its name in tests/programs.py."""

ELSEWHERE: Mapping[str, str] = {
    "mcp": "the tools of mcp are the user's, and there is no random baseline: test_tool_server.py plays it instead",
    "webarena": "the sites of webarena are the user's and keep their state: test_browser_webarena.py plays it instead",
}
"""The worlds that this suite cannot hold to their contract, and what does so instead."""


@dataclass(frozen=True)
class Case:
    """A world under examination."""

    name: str
    world: World
    parameters: Mapping[str, Any]
    effort: Effort = field(default_factory=Effort)


def marked(names: Sequence[str]) -> list[Any]:
    """The names of worlds as parameters of a fixture, each with the mark of the program that it needs."""
    return [pytest.param(name, marks=pytest.mark.needs(NEEDED[name]) if name in NEEDED else ()) for name in names]


@contextmanager
def opened_case(name: str, folder: Path) -> Iterator[Case]:
    """An installed world with what it needs."""
    if name in ELSEWHERE:
        pytest.skip(ELSEWHERE[name])
    with PARAMETERS.get(name, default_parameters)(folder) as parameters:
        yield Case(name, make_world(name, parameters), parameters, EFFORT.get(name, Effort()))


@contextmanager
def default_parameters(folder: Path) -> Iterator[dict[str, Any]]:
    yield {}


@contextmanager
def rivers(folder: Path) -> Iterator[dict[str, Any]]:
    """A corpus and questions on it, as `search_corpus` reads them."""
    names = [
        f"{one}{two}{three}r" for one in ("Ka", "Lo", "Mi", "Ru", "Te") for two in "aeiou" for three in ("ba", "do")
    ]
    corpus, questions = folder / "corpus.jsonl", folder / "questions.jsonl"
    with corpus.open("w") as documents, questions.open("w") as asked:
        for number, river in enumerate(names):
            source = f"Mount {river[::-1].title()}"
            document = {"id": str(number), "title": river, "text": f"The {river} rises on {source}."}
            documents.write(json.dumps(document) + "\n")
            asked.write(json.dumps({"question": f"Where does the {river} rise?", "answer": [source]}) + "\n")
    yield {"questions": str(questions), "corpus": str(corpus)}


@contextmanager
def agentgym_server(folder: Path) -> Iterator[dict[str, Any]]:
    """A server that answers as AgentGym's BabyAI does, which tells the possible actions."""
    from tests.envs.agentgym.agentgym_servers import STANDINS, served

    with served(STANDINS["babyai"]().app) as address:
        items = {"train": "0-2", "validation": "3-5", "test": "6-8"}
        yield {"server": "babyai", "address": address, **items}


@contextmanager
def corridor_server(folder: Path) -> Iterator[dict[str, Any]]:
    """A server that answers as OpenEnv's do, which tells the possible actions and a solution."""
    from tests.envs.agentgym.agentgym_servers import served
    from tests.envs.openenv.corridor_server import CorridorServer

    with served(CorridorServer().app) as address:
        told = {"offers": "legal_actions", "solution": "rest", "observation": ["message"]}
        yield {"url": address, "success_reward": 1.0, "grammar": "-1 or 1.", **told}


@contextmanager
def frozen_lake_server(folder: Path) -> Iterator[dict[str, Any]]:
    """A server of ours, with one world."""
    from envs.service.application import create_application
    from envs.service.offers import read_offers
    from tests.envs.agentgym.agentgym_servers import served

    with served(create_application(read_offers(["frozen_lake"]))) as address:
        yield {"url": address, "world": "frozen_lake", "version": "1"}


@contextmanager
def two_lakes(folder: Path) -> Iterator[dict[str, Any]]:
    """A mixture that trains on the one world and is tested on the other too."""
    parts = {"lake": {"world": "frozen_lake", "preset": "ragen-v2-no-slip", "weight": 2}, "bandit": {}}
    yield {"parts": parts, "train": ["lake"]}


@contextmanager
def short_science(folder: Path) -> Iterator[dict[str, Any]]:
    """Tasks that take few actions: to say what is possible costs the simulator a tenth of a second a step.

    All episodes share a process: there they could disturb one another, and a second one would take seconds to start.
    """
    from tests.envs.sciworld.sciworld_samples import end_java

    try:
        yield {"types": ["find-non-living-thing", "lifespan-longest-lived"], "turns": 7, "processes": 1}
    finally:
        end_java()


PARAMETERS: Mapping[str, Callable[[Path], Any]] = {
    "agentgym": agentgym_server,
    "mixture": two_lakes,
    "openenv": corridor_server,
    "remote": frozen_lake_server,
    "sciworld": short_science,
    "search_corpus": rivers,
}


Sums = Mapping[str, float]
"""Of an episode: each reward summed over its steps."""


def bandit(episode: PlayedEpisode, sums: Sums) -> bool:
    """One payoff: 0.1 of the low arm, or 0 or 1 of the high one, which is the better one."""
    return sums["payoff"] in ((0.0, 1.0) if episode.success else (0.1,))


def sokoban(episode: PlayedEpisode, sums: Sums) -> bool:
    """-0.1 an action, 1 for the box on its target at the end, 10 when all are."""
    actions, solved = len(episode.steps), float(episode.success)
    return (round(sums["step"], 6), sums.get("box", 0.0), sums.get("solved", 0.0)) == (
        round(-0.1 * actions, 6),
        solved,
        10 * solved,
    )


def goal(episode: PlayedEpisode, sums: Sums) -> bool:
    """1 for a success, else nothing."""
    return sums.get("goal", 0.0) == float(episode.success)


def taxi(episode: PlayedEpisode, sums: Sums) -> bool:
    """-1 a step, -10 for a pick-up or drop-off in the wrong place, 20 for the right drop-off, which is the last."""
    paid = [step.rewards["reward"] for step in episode.steps]
    return set(paid[:-1]) <= {-1.0, -10.0} and (paid[-1] == 20.0) == episode.success and sums["reward"] == sum(paid)


def search(episode: PlayedEpisode, sums: Sums) -> bool:
    """1 for the right answer, in which the answer is then present; a search counts once for each query."""
    searches = {action for action in episode.actions if action.startswith("search[")}
    right, present = sums.get("exact_match", 0.0), sums.get("answer_present", 0.0)
    return right == float(episode.success) <= present <= 1 and sums.get("tool_execution", 0.0) <= len(searches)


def webshop(episode: PlayedEpisode, sums: Sums) -> bool:
    """From 0 to 1, and 1 exactly where the whole wish is met."""
    return 0 <= sums.get("score", 0.0) <= 1 and (sums.get("score", 0.0) == 1) == episode.success


def babyai(episode: PlayedEpisode, sums: Sums) -> bool:
    """Once, at the end, between 0.1 and 1."""
    paid = [value for step in episode.steps for value in step.rewards.values()]
    return (0.1 <= sums["mission"] < 1 and len(paid) == 1) if episode.success else not any(paid)


def sciworld(episode: PlayedEpisode, sums: Sums) -> bool:
    """The score, from 0 to 1, or -1 after a failure; 1 exactly for a success."""
    score = round(sums.get("score", 0.0), 6)
    return (score == -1 or 0 <= score <= 1) and (score == 1) == episode.success


def browser(episode: PlayedEpisode, sums: Sums) -> bool:
    """1 for a success, else nothing."""
    return sums.get("solved", 0.0) == float(episode.success)


def agentgym(episode: PlayedEpisode, sums: Sums) -> bool:
    """The server's score, from 0 to 1; BabyAI's is above 0 exactly for a success."""
    return 0 <= sums.get("score", 0.0) <= 1 and (sums.get("score", 0.0) > 0) == episode.success


def mixture(episode: PlayedEpisode, sums: Sums) -> bool:
    """What the task's own world pays, under the part's name."""
    part = str(episode.task.tags["world"])
    own = {name.removeprefix(f"{part}/"): value for name, value in sums.items()}
    return all(name.startswith(f"{part}/") for name in sums) and {"lake": goal, "bandit": bandit}[part](episode, own)


def corridor(episode: PlayedEpisode, sums: Sums) -> bool:
    """-0.1 a step, and 1 for the last cell."""
    return round(sums.get("reward", 0.0) + 0.1 * len(episode.steps), 6) == 1.1 * episode.success


DOCUMENTED: Mapping[str, Callable[[PlayedEpisode, Sums], bool]] = {
    "agentgym": agentgym,
    "babyai": babyai,
    "bandit": bandit,
    "browser": browser,
    "frozen_lake": goal,
    "gymnasium": taxi,
    "mixture": mixture,
    "openenv": corridor,
    "remote": goal,
    "sciworld": sciworld,
    "search": search,
    "search_corpus": search,
    "sokoban": sokoban,
    "textcraft": goal,
    "webshop": webshop,
}
"""What each world's documentation says that an episode's rewards sum to."""


def of_grammar(world: World, text: str) -> Sequence[str]:
    """Names that are the same everywhere: the first sentence of the grammar."""
    return re.split(", | or ", world.grammar.partition(".")[0])


def arms(world: World, text: str) -> Sequence[str]:
    return text.partition("Arms: ")[2].split(", ")


def buttons(world: World, text: str) -> Sequence[str]:
    return [f"click[{button}]" for button in re.findall(r"\[(.*?)\]", text)]


def available(world: World, text: str) -> Sequence[str]:
    offered: list[str] = json.loads(text.rpartition("Available actions: ")[2])
    return offered


OFFERED: Mapping[str, Callable[[World, str], Sequence[str]]] = {
    "agentgym": available,
    "babyai": of_grammar,
    "bandit": arms,
    "frozen_lake": of_grammar,
    "gymnasium": of_grammar,
    "openenv": of_grammar,
    "remote": of_grammar,
    "sokoban": of_grammar,
    "webshop": buttons,
}
"""The actions that a world's texts list as possible, read from an observation that is not the last. What the others
show is no action yet: passages, recipes, things and elements, of which their random baseline policies draw."""
