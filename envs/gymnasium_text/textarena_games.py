"""TextArena's games for one player as a Gymnasium environment: `envs.gymnasium_text.textarena_games:TextArena-v0`.

`game` is the name of a game, such as `Sudoku-v0-easy`. A game pays once, at its end: 1 for a win, a share of it where
the game knows one. It allows one mistake in a row, and ends at the second.

TextArena draws from Python's global generator. Here each game has a generator of its own, which takes the place of the
global one while the game computes, under a lock: so a game depends on its seed only, and changes nothing for others.
"""

from __future__ import annotations

import random
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
from gymnasium.spaces import Text

LONGEST = 2_000
_drawing = threading.Lock()


class TextArenaGames(gymnasium.Env[str, str]):
    """A game of TextArena. Raises ValueError for an unknown game, and ImportError without TextArena."""

    def __init__(self, game: str) -> None:
        self._textarena = _library()
        try:
            self._game = self._textarena.make(game)
        except Exception as error:  # TextArena has no class of its own for this
            raise ValueError(f"game must be one of TextArena's, such as Sudoku-v0-easy; {game!r}: {error}") from error
        while isinstance(self._game, self._textarena.Wrapper):  # its texts are joined here
            self._game = self._game.env
        self._generator = random.Random(0)
        self._began = False
        self.action_space = Text(LONGEST, charset=string.printable)
        self.observation_space = Text(1_000_000)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the game of this seed. Raises ValueError for a game of several players."""
        super().reset(seed=seed, options=options)
        self._generator, self._began = random.Random(seed), False
        with self._own_randomness():
            try:
                self._game.reset(num_players=1, seed=None if seed is None else seed % 2**32)
            except AssertionError as error:
                raise ValueError(f"game must be one for one player; {error}") from error
        return self._new_text(), {"won": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play. An action without square brackets is given them, as TextArena does."""
        if not self._began:  # what happens from here on is the episode's noise
            self._generator, self._began = random.Random(int(self.np_random.integers(2**62))), True
        with self._own_randomness():
            ended, _ = self._game.step(action if "[" in action else f"[{action}]")
        state = self._game.state
        reward = float(state.rewards[0]) if ended and state.rewards else 0.0
        mistaken = bool(getattr(state, "error_count", 0)) or bool(state.game_info[0]["invalid_move"])
        text = self._new_text()
        if ended:
            text = "\n".join(part for part in (text, str(state.game_info[0].get("reason") or "")) if part)
        return text or "The game is over.", reward, bool(ended), False, {"won": reward >= 1.0, "invalid": mistaken}

    def _new_text(self) -> str:
        """What the game says since the last action."""
        _, messages = self._game.get_observation()
        own = self._textarena.ObservationType.PLAYER_ACTION
        return "\n".join(str(text).strip() for _, text, kind in messages if kind is not own)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        with _drawing:
            outside = random.getstate()
            random.setstate(self._generator.getstate())
            try:
                yield
            finally:
                self._generator.setstate(random.getstate())
                random.setstate(outside)


def _library() -> Any:
    try:
        import textarena
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}: pip install 'turnwise[textarena]'") from error
    return textarena


gymnasium.register("TextArena-v0", entry_point=TextArenaGames)
