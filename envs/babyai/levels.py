"""Levels: rooms, objects, the agent's position and a mission, all drawn by the package from one seed.

The split is a function of what was drawn: by a digest of its content, every tenth start is a validation start, every
tenth a test start, and the others are for training. A task draws starts until one belongs to its split. So no start is
in two splits, however few starts a level has.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache, lru_cache
from typing import Any

import gymnasium
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, AndInstr, BeforeInstr, Instr

from turnwise import seeding
from turnwise.world import Split

# The package prints a line for every layout that it throws away. Standard output belongs to the process, and episodes
# are made on many threads, so redirecting it while a level is drawn would not be safe.
vars(roomgrid_level)["print"] = lambda *words: None

PREFIX = "BabyAI-"
MAXIMUM_DRAWS = 2_000

REFUSED = {
    "GoToImpUnlock": "on some layouts the package's bot goes round in circles",
    "KeyInBox": "the package's bot opens no boxes",
    "OpenDoorsOrderN2Debug": "the package's bot opens doors in an order that fails the mission",
    "OpenDoorsOrderN4Debug": "the package's bot opens doors in an order that fails the mission",
    "PutNextS5N2Carrying": "the package's bot does not know what it carries at the start",
    "PutNextS6N3Carrying": "the package's bot does not know what it carries at the start",
    "PutNextS7N4Carrying": "the package's bot does not know what it carries at the start",
    "UnlockToUnlock": "on some layouts the package's bot goes round in circles",
}
"""Refused levels and why: the bot fails more than one start in twenty, so there is no competent baseline policy."""


@cache
def playable() -> dict[str, str]:
    """Every playable level: from our name, `GoToLocal`, to the package's, `BabyAI-GoToLocal-v0`."""
    names = sorted(name for name in gymnasium.registry if name.startswith(PREFIX))
    package_names = {name.removeprefix(PREFIX).rpartition("-")[0]: name for name in names}
    return {level: name for level, name in package_names.items() if level not in REFUSED}


def start(level: str, seed: int) -> RoomGridLevel:
    """The level that the package draws from a seed, ready to play."""
    grid_level = _undrawn(level)
    grid_level.reset(seed=seed)
    return grid_level


def _undrawn(level: str) -> RoomGridLevel:
    environment = gymnasium.make(playable()[level], disable_env_checker=True).unwrapped
    if not isinstance(environment, RoomGridLevel):
        raise TypeError(f"a BabyAI level must be a RoomGridLevel; {level} is a {type(environment).__name__}")
    return environment


@lru_cache(maxsize=100_000)
def seed_of_split(level: str, split: Split, seed: int) -> int:
    """The first seed that draws a start of this split, in a sequence of seeds derived from `seed`.

    Raises ValueError when `MAXIMUM_DRAWS` draws give none.
    """
    grid_level = _undrawn(level)
    # Nobody looks at the starts that are tried, and what an agent would see of one takes a quarter of its time.
    grid_level.gen_obs = dict  # type: ignore[method-assign]
    for number in range(MAXIMUM_DRAWS):
        start_seed = seeding.derive(seed, "babyai start", number)
        grid_level.reset(seed=start_seed)
        if split_of(grid_level) == split:
            return start_seed
    raise ValueError(
        f"a level must have {split} starts; found none of {level} in {MAXIMUM_DRAWS} draws: leave it out of levels"
    )


def split_of(grid_level: RoomGridLevel) -> Split:
    """The split that a start belongs to."""
    share = seeding.derive(0, "babyai split", grid_level.mission, content(grid_level)) % 10
    return "validation" if share == 8 else "test" if share == 9 else "train"


def content(grid_level: RoomGridLevel) -> str:
    """Digest of the grid, the agent, what it carries and the progress of the mission. The step count is left out."""
    state = [
        [cell and ("wall" if cell.type == "wall" else cell.encode()) for cell in grid_level.grid.grid],
        [int(place) for place in grid_level.agent_pos],
        int(grid_level.agent_dir),
        _name(grid_level.carrying),
        _progress(grid_level.instrs),
    ]
    return hashlib.blake2b(json.dumps(state).encode(), digest_size=16).hexdigest()


def _progress(instruction: Instr) -> list[Any]:
    """The package's record of a mission: which parts are done, where its objects are, and what was carried."""
    if isinstance(instruction, AfterInstr | AndInstr | BeforeInstr):
        parts = [instruction.instr_a, instruction.instr_b]
        done = [instruction.a_done == "success", instruction.b_done == "success"]
        return [done, *(_progress(part) for part in parts)]
    descriptions = [
        getattr(instruction, name) for name in ("desc", "desc_move", "desc_fixed") if hasattr(instruction, name)
    ]
    # The package counts a grey wall as a grey object.
    things = [thing for description in descriptions for thing in description.obj_set if thing.type != "wall"]
    places = [[int(place) for place in thing.cur_pos] for thing in things]
    return [places, _name(getattr(instruction, "preCarrying", None))]


def _name(thing: WorldObj | None) -> str:
    return "nothing" if thing is None else f"{thing.color} {thing.type}"
