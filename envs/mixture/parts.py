"""The parts of a mixture: which worlds, how often each, and in which order their tasks come."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from typing import Any

from turnwise.world import World, make_world, positive, with_preset

KEYS = ("world", "preset", "parameters", "weight")
NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Part:
    """One world of a mixture. Its share of a panel is its weight over the sum of the weights."""

    name: str
    world: World
    weight: float


@dataclass(frozen=True)
class Description:
    """What the parameters say of a part, read but not made."""

    world: str
    parameters: Mapping[str, Any]
    weight: float

    def make(self, name: str) -> Part:
        """The part. Raises ValueError where its world refuses the parameters."""
        try:
            return Part(name, make_world(self.world, self.parameters), self.weight)
        except (TypeError, ValueError) as error:
            raise ValueError(f"part {name!r}: {error}") from error


def described(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Description]:
    """What is said of each part, by its name. Raises ValueError where it cannot be meant."""
    if not isinstance(parts, Mapping) or not parts:
        raise ValueError(f"parts must name the worlds, such as {{lake: {{world: frozen_lake}}}}; found {parts!r}")
    return {name: _described(name, said) for name, said in parts.items()}


def _described(name: str, said: Mapping[str, Any]) -> Description:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"a part's name must be letters, digits, - and _; found {name!r}")
    if not isinstance(said, Mapping):
        raise ValueError(f"part {name!r} must say of {', '.join(KEYS)} what is not usual; found {said!r}")
    for key in said:
        if key not in KEYS:
            nearest = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(KEYS)}"
            raise ValueError(f"part {name!r} has no key {key!r}: {hint}")
    world, parameters, weight = said.get("world", name), said.get("parameters", {}), said.get("weight", 1)
    if not isinstance(parameters, Mapping):
        raise ValueError(f"the parameters of part {name!r} must be a mapping; found {parameters!r}")
    weight = positive(f"the weight of part {name!r}", weight)
    return Description(world, with_preset(world, said.get("preset", ""), parameters), weight)


def in_turn(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts without end, each as often as its weight says, at every moment as nearly as whole numbers allow.

    The next one is the part that is furthest behind its share; among equals the first. So the first tasks of a panel
    are mixed as the whole is, and a longer panel begins with a shorter one.
    """
    total = sum(part.weight for part in parts)
    given = [0] * len(parts)
    for number in numbers(1):
        behind = [part.weight * number / total - given[place] for place, part in enumerate(parts)]
        place = behind.index(max(behind))
        given[place] += 1
        yield parts[place]
