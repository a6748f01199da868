"""The world: a Gymnasium environment by its identifier, with seeds as tasks.

Where the environment publishes its model and its state, as `P` and `s`, the oracle plans with them (see `planner`).
Otherwise configuration alone cannot provide an oracle: `baselines` then holds only `random`, and asking for the oracle
raises ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from envs.gymnasium_text.episode import GymnasiumEpisode, TextEpisode
from envs.gymnasium_text.game import Game
from envs.gymnasium_text.settings import TEXTARENA, TEXTWORLD, settings_of
from turnwise import seeding
from turnwise.world import (
    Column,
    Limits,
    Reward,
    Split,
    Task,
    World,
    require_family,
    whole_number,
)

MAXIMUM_DRAWS = 2_000


class GymnasiumText(World):
    """Any environment that `gymnasium.make` makes with numbered actions or with texts as actions, played in text.

    Parameters: `id`, as `gymnasium.make` takes it, also `module:Name-v0`; `arguments`, further arguments of
    `gymnasium.make`; `instruction`, what a newcomer must know; `action_values`, the number of every action by its
    name; `success_reward`: an episode succeeds if it terminates with at least this reward in its last step, or
    `success_info`: if it terminates with a true value under this key of its information; `view`, "template" with
    `template` and `fields` (see `views.Template`), "ansi" for the environment's own picture, or "text" for an
    observation that is a text; `action`, "named" for numbered actions, or "text" for an environment that takes any
    text (a `gymnasium.spaces.Text`), with `grammar`, what an action looks like, and, where its information has them,
    the keys `offers`, the list of possible actions, of which the random baseline policy draws, and `solution`, the
    list of actions that solve the task from here, which the oracle plays; `starts`, "apart" if no first observation
    may be in two splits, else "shared"; `turns`, `actions_per_turn` and `actions`, the limits of an episode.

    Missing values are taken from `settings.KNOWN`, which covers the four environments of Gymnasium that are made for
    text, TextWorld's games and TextArena's. A limit that the environment was registered with applies as well, and
    truncates the episode.

    `oracle_success` is that of Taxi, the default. On Gymnasium's slippery 4 x 4 lake the best policy succeeds three
    times out of four.
    """

    name: ClassVar[str] = "gymnasium"
    version: ClassVar[str] = "1"
    oracle_success: ClassVar[float] = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "taxi": {"id": "Taxi-v4"},
        "cliff-walking": {"id": "CliffWalking-v1"},
        "frozen-lake": {"id": "FrozenLake-v1"},
        "blackjack": {"id": "Blackjack-v1"},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {
        "reward": Reward("what the environment pays for a step", "outcome", 1.0),
        "solved": Reward("1 for the step with which the episode succeeds, else 0", "outcome", 1.0),
    }
    columns: ClassVar[tuple[Column, ...]] = (*World.columns, Column("return", "reward", percent=False))

    def __init__(
        self,
        *,
        id: str = "Taxi-v4",
        arguments: Mapping[str, Any] | None = None,
        instruction: str | None = None,
        action: str | None = None,
        action_values: Mapping[str, int] | None = None,
        grammar: str | None = None,
        offers: str | None = None,
        solution: str | None = None,
        success_reward: float | None = None,
        success_info: str | None = None,
        view: str | None = None,
        template: str | None = None,
        fields: Sequence[Mapping[str, Any]] | None = None,
        starts: str | None = None,
        turns: int | None = None,
        actions_per_turn: int = 1,
        actions: int | None = None,
    ) -> None:
        self.settings = settings_of(
            id,
            {
                "instruction": instruction,
                "action": action,
                "action_values": action_values,
                "grammar": grammar,
                "offers": offers,
                "solution": solution,
                "success_reward": success_reward,
                "success_info": success_info,
                "view": view,
                "template": template,
                "fields": fields,
                "starts": starts,
                "turns": turns,
            },
        )
        self.limits = Limits(
            turns=self.settings.turns,
            actions_per_turn=whole_number("actions_per_turn", actions_per_turn, 1, 100),
            actions=None if actions is None else whole_number("actions", actions, 1, 100_000),
        )
        self._id = id
        self._arguments = dict(arguments or {})
        self._game = Game(id, self._arguments, self.settings)
        # Only an instance knows whether its environment publishes a model, or tells what is possible and what is best.
        if self._game.texts is not None:
            keys = {"random": self.settings.offers, "oracle": self.settings.solution}
            self.baselines = tuple(name for name, key in keys.items() if key is not None)
            self.names_states = False
        elif self._game.plan is None:
            self.baselines = ("random",)
            self.names_states = False
        variant = ""
        # A folder of games is known by what it holds, see `files`, and not by its place.
        arguments = {name: each for name, each in self._arguments.items() if (self._id, name) != (TEXTWORLD, "games")}
        if arguments:
            text = json.dumps(arguments, sort_keys=True)
            variant = f"-{seeding.derive(0, 'gymnasium arguments', text):x}"
        self._family = f"{self.name}/{self.version}/{self._id}{variant}/starts-{self.settings.starts}/"
        self.instruction, self.grammar = self.settings.instruction, f"{self._game.legal}."

    @classmethod
    def modules(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The world's own module, and the module named in the identifier where that is `module:Name-v0`."""
        module, colon, _ = str(parameters.get("id", "")).rpartition(":")
        return (cls.__module__, module) if colon else (cls.__module__,)

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """Gymnasium, and the package of games. Another environment carries its version in its identifier."""
        packages = {TEXTWORLD: ("textworld",), TEXTARENA: ("textarena",)}
        return ("gymnasium", *packages.get(str(parameters.get("id", "")), ()))

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """TextWorld's game files."""
        arguments = parameters.get("arguments")
        if parameters.get("id") != TEXTWORLD or not isinstance(arguments, Mapping) or "games" not in arguments:
            return {}
        return {"arguments.games": Path(str(arguments["games"]))}

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` seeds of a split, which is unbounded."""
        return [self._task(split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> GymnasiumEpisode | TextEpisode:
        """Environment that begins as the task fixes; `seed` drives its noise.

        Raises ValueError for another world's task.
        """
        require_family(task, self._family)
        kind = GymnasiumEpisode if self._game.texts is None else TextEpisode
        return kind(self._game, task, seed)

    def _task(self, split: Split, number: int) -> Task:
        name = f"{self._family}{split}/{number}"
        for draw in range(MAXIMUM_DRAWS):
            seed = seeding.derive(0, name, draw)
            if self.settings.starts == "shared" or self._split_of_start(seed) == split:
                return Task(self.name, name, split, seed)
        raise ValueError(
            f"starts 'apart' must leave first observations for {split}; {self._id!r} gave none in {MAXIMUM_DRAWS} "
            "draws: set starts to 'shared'"
        )

    def _split_of_start(self, seed: int) -> Split:
        """The split of a first observation, by a digest of its content: eight in ten are for training."""
        environment = self._game.take()
        observation, _ = environment.reset(seed=seed)
        self._game.give_back(environment)
        draw = seeding.derive(0, "gymnasium split", json.dumps(_plain(observation), sort_keys=True)) % 10
        return "validation" if draw == 8 else "test" if draw == 9 else "train"


def _plain(observation: Any) -> Any:
    """An observation converted to types that JSON can hold."""
    if isinstance(observation, np.ndarray | np.generic):
        return observation.tolist()
    if isinstance(observation, Mapping):
        return {str(name): _plain(part) for name, part in observation.items()}
    if isinstance(observation, list | tuple):
        return [_plain(part) for part in observation]
    return observation
