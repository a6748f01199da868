"""TextWorld's games as a Gymnasium environment: `envs.gymnasium_text.textworld_games:TextWorld-v0`.

`games` is a game file or a folder of them: `.z8` or `.ulx`, with its `.json` next to it, as `tw-make` writes them. A
reset takes the game that the seed draws. TextWorld's score is a sum; a step's reward is its change.
"""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Text

ENDINGS = (".z8", ".ulx")
LONGEST = 200
_PICTURE = re.compile(r"[\s_$\\/|<>]*")
"""A line of the picture in letters with which every game begins."""
_PROMPT = re.compile(r"^>.*\Z", re.MULTILINE | re.DOTALL)
"""The line in which a person would type, with the game's status."""


class TextWorldGames(gymnasium.Env[str, str]):
    """Games of a folder, one for each seed. Raises ValueError without a game, and ImportError without TextWorld."""

    def __init__(self, games: str) -> None:
        self._textworld = _library()
        place = Path(games)
        paths = [place] if place.is_file() else sorted(place.rglob("*"))
        self._games = [path for path in paths if path.name.endswith(ENDINGS)]
        if not self._games:
            raise ValueError(f"games must be a game or a folder with games, {', '.join(ENDINGS)}; found {games!r}")
        self._playing: Any = None
        self._game: Path | None = None
        self._score = 0.0
        self.action_space = Text(LONGEST, charset=string.printable.rstrip(string.whitespace) + " ")
        self.observation_space = Text(1_000_000)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the game that the seed draws."""
        super().reset(seed=seed, options=options)
        game = self._games[int(self.np_random.integers(len(self._games)))]
        if game != self._game:
            self.close()
            requested_infos = self._textworld.EnvInfos(
                admissible_commands=True, policy_commands=True, won=True, score=True
            )
            self._playing, self._game = self._textworld.start(str(game), requested_infos), game
        state = self._playing.reset()
        self._score = 0.0
        return _answer(state), _information(state)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Type a command."""
        state, score, ended = self._playing.step(action)
        reward, self._score = float(score) - self._score, float(score)
        return _answer(state), reward, bool(ended), False, _information(state)

    def close(self) -> None:
        """End the game that is being played."""
        if self._playing is not None:
            self._playing.close()
            self._playing = self._game = None


def _answer(state: Any) -> str:
    """What a command is answered with, without the picture in letters and the empty lines around it."""
    lines = [line.rstrip() for line in _PROMPT.sub("", str(state.feedback)).strip("\n").splitlines()]
    while lines and _PICTURE.fullmatch(lines[0]):
        del lines[0]
    text = "\n".join(line for line, before in zip(lines, ["", *lines], strict=False) if line or before)
    return text.strip() or "Nothing is said."


def _information(state: Any) -> dict[str, Any]:
    """What is possible, in one order, and what is left of the solution."""
    return {
        "admissible_commands": sorted(state.get("admissible_commands") or []),
        "policy_commands": list(state.get("policy_commands") or state.get("extra.walkthrough") or []),
        "won": bool(state.get("won")),
    }


def _library() -> Any:
    try:
        import textworld
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}: pip install 'turnwise[textworld]'") from error
    return textworld


gymnasium.register("TextWorld-v0", entry_point=TextWorldGames)
