"""Environments whose actions are texts: a game that is written here, and TextWorld's and TextArena's, if installed."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete, Text

from envs.gymnasium_text import GymnasiumText
from turnwise.world import Remaining, make_world

REMAINING = Remaining(10, 1, 10)
WORDS = ("ant", "bee", "cat", "dog")


class Words(gymnasium.Env[str, str]):
    """Say the secret word. Hot or cold; the third word that is none of the four ends the game."""

    action_space = Text(12)
    observation_space = Text(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.secret, self.nonsense = WORDS[int(self.np_random.integers(4))], 0
        return f"A word like {self.secret[0]}..", self.told(False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.nonsense += action not in WORDS
        said = f"{action}? {'hot' if self.np_random.random() < 0.5 else 'cold'}"
        won = action == self.secret
        return said, float(won), won or self.nonsense == 3, False, self.told(won)

    def told(self, won: bool) -> dict[str, Any]:
        return {"won": won, "possible": list(WORDS), "rest": [self.secret], "wrong": "a text"}


gymnasium.register("Words-v0", entry_point=Words)
SETTINGS: dict[str, Any] = {
    "id": "Words-v0",
    "action": "text",
    "instruction": "Say the word.",
    "grammar": "one word.",
    "view": "text",
    "success_info": "won",
}
LISTS = {"offers": "possible", "solution": "rest"}


def test_baselines_are_those_that_the_environment_tells_enough_for() -> None:
    assert GymnasiumText(**SETTINGS).baselines == ()
    assert GymnasiumText(**SETTINGS, offers="possible").baselines == ("random",)
    world = GymnasiumText(**SETTINGS, **LISTS)
    assert (world.baselines, world.names_states, world.grammar) == (("random", "oracle"), False, "one word.")


def test_the_oracle_wins_and_random_draws_what_is_possible() -> None:
    world = GymnasiumText(**SETTINGS, **LISTS)
    for task in world.tasks("train", 5):
        environment = world.make(task, 0)
        environment.reset()
        draws = {environment.random(np.random.default_rng(seed), REMAINING).actions for seed in range(30)}
        assert draws == {(word,) for word in WORDS}
        step = environment.step(environment.oracle(REMAINING).actions[0])
        assert (step.terminated, step.success, step.rewards) == (True, True, {"reward": 1.0, "solved": 1.0})
        again = environment.step("ant")
        assert (again.terminated, again.valid, again.success, again.rewards) == (True, False, True, {})


def test_any_text_of_the_space_is_played_and_what_is_no_action_changes_nothing() -> None:
    environment = (world := GymnasiumText(**SETTINGS, **LISTS)).make(world.tasks("train", 1)[0], 0)
    first = environment.reset().text
    for text in ("", "two words", "é", "x" * 13, "a\nb"):
        refused = environment.step(text)
        assert (refused.valid, refused.effective, refused.terminated) == (False, False, False)
        assert refused.observation.text == f"Not an action. one word.\n{first}"
    steps = [environment.step(f" {text} ") for text in ("emu", "fox", "gnu")]
    assert [step.valid for step in steps] == [False] * 3
    assert [step.terminated for step in steps] == [False, False, True]
    assert steps[0].observation.text.startswith("emu? ")
    assert not steps[2].success


def test_the_task_is_the_problem_and_the_seed_is_the_noise() -> None:
    world = GymnasiumText(**SETTINGS)
    task = world.tasks("train", 1)[0]

    def seen(seed: int) -> list[str]:
        environment = world.make(task, seed)
        first = environment.reset().text
        texts = [first, *(environment.step("ant").observation.text for _ in range(6))]
        environment.close()
        return texts

    assert seen(1) == seen(1)
    assert len({tuple(seen(seed)) for seed in range(8)}) > 1
    assert len({seen(seed)[0] for seed in range(8)}) == 1


class Numbers(Words):
    action_space = Discrete(4)  # type: ignore[assignment]


gymnasium.register("Numbers-v0", entry_point=Numbers)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"action": "texts"}, "action must be one of named, text; found 'texts'"),
        ({"action_values": {"ant": 0}}, "action_values must be left out where action is 'text'"),
        ({"grammar": " "}, "grammar must say in words"),
        ({"grammar": None}, "grammar must be given for 'Words-v0'"),
        ({"offers": "nowhere"}, "offers must be a key of the information with a list of texts; found None"),
        ({"solution": "wrong"}, "solution must be a key of the information with a list of texts; found 'a text'"),
        ({"id": "Numbers-v0"}, "action 'text' must be for an environment whose actions are texts; found Discrete"),
        ({"id": "Taxi-v4", "action": "named"}, "grammar must be left out where actions are named"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GymnasiumText(**{**SETTINGS, **changes})


@pytest.mark.parametrize(
    ("module", "game", "package"),
    [
        ("textworld_games:TextWorld-v0", {"games": "."}, "textworld"),
        ("textarena_games:TextArena-v0", {"game": "x"}, "textarena"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(module: str, game: dict[str, str], package: str) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ValueError, match=rf"No module named '{package}': pip install 'turnwise\[{package}\]'"):
        make_world("gymnasium", {"id": f"envs.gymnasium_text.{module}", "arguments": game})


def test_textworlds_games_are_solved_by_their_own_solutions(tmp_path: Path) -> None:
    pytest.importorskip("textworld", reason="needs textworld: pip install 'turnwise[textworld]'")
    maker = str(Path(sys.executable).with_name("tw-make"))
    size = ["--world-size", "2", "--nb-objects", "3", "--quest-length", "2"]
    for seed in "12":
        made = [maker, "custom", *size, "--seed", seed, "--output", str(tmp_path / f"{seed}.z8")]
        subprocess.run(made, check=True, capture_output=True)
    parameters = {
        "id": "envs.gymnasium_text.textworld_games:TextWorld-v0",
        "arguments": {"games": str(tmp_path)},
    }
    world = make_world("gymnasium", parameters)
    assert world.files(parameters) == {"arguments.games": tmp_path}
    assert world.distributions(parameters) == ("gymnasium", "textworld")
    tasks = world.tasks("train", 6)
    assert str(tmp_path) not in tasks[0].id
    playing = [world.make(task, 0) for task in (*tasks, tasks[0])]  # all at once
    texts = [environment.reset().text for environment in playing]
    assert len(set(texts)) == 2 and texts[0] == texts[-1]
    assert not any("$$" in text or ">" in text for text in texts)
    for environment in playing:
        drawn = environment.random(np.random.default_rng(0), REMAINING).actions[0]
        assert drawn in ("look", "inventory") or " " in drawn
        nonsense = environment.step("frobnicate")
        assert (nonsense.valid, nonsense.terminated, nonsense.rewards) == (
            False,
            False,
            {"reward": 0.0, "solved": 0.0},
        )
        for _ in range(2):
            step = environment.step(environment.oracle(REMAINING).actions[0])
        assert (step.valid, step.terminated, step.success) == (True, True, True)
        assert step.rewards == {"reward": 1.0, "solved": 1.0}
        environment.close()


def test_textarenas_games_depend_on_task_and_seed_only() -> None:
    pytest.importorskip("textarena", reason="needs textarena: pip install 'turnwise[textarena]'")

    def world(game: str) -> Any:
        return make_world(
            "gymnasium", {"id": "envs.gymnasium_text.textarena_games:TextArena-v0", "arguments": {"game": game}}
        )

    def seen(game: str, number: int, seed: int, *actions: str) -> list[Any]:
        random.seed(number * 100 + seed)  # the global generator counts for nothing
        before = random.getstate()
        made = world(game)
        environment = made.make(made.tasks("train", 3)[number], seed)
        found: list[Any] = [environment.reset().text, *(environment.step(action) for action in actions)]
        assert random.getstate() == before
        return found

    moves = ("[up]", "left", "[down]", "right")
    assert seen("2048-v0", 0, 0, *moves) == seen("2048-v0", 0, 0, *moves)
    assert seen("2048-v0", 0, 0, *moves)[1:] != seen("2048-v0", 0, 1, *moves)[1:]
    assert seen("2048-v0", 0, 0)[0] == seen("2048-v0", 0, 1)[0] != seen("2048-v0", 1, 0)[0]
    # Two mistakes in a row end a game; a win pays 1.
    _, first, second = seen("GuessTheNumber-v0", 0, 0, "what?", "why?")
    assert (first.valid, first.terminated, second.valid, second.terminated) == (False, False, False, True)
    guesses = [seen("GuessTheNumber-v0", 0, 0, f"[{number}]")[1] for number in range(1, 21)]
    (won,) = (step for step in guesses if step.success)
    assert (won.terminated, won.rewards) == (True, {"reward": 1.0, "solved": 1.0})
    for game in ("Nowhere-v0", "TicTacToe-v0"):
        with pytest.raises(ValueError, match="game must be one"):
            world(game)
