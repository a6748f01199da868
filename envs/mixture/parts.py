"""The parts of a mixture: which worlds, with which weights, and the order in which their tasks come."""

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
    """One world of a mixture. Its share of a task set is its weight over the sum of the weights."""

    name: str
    world: World
    weight: float


@dataclass(frozen=True)
class Description:
    """A part as the parameters describe it, validated but not constructed."""

    world: str
    parameters: Mapping[str, Any]
    weight: float

    def make(self, name: str) -> Part:
        """Construct the part. Raises ValueError if its world refuses the parameters."""
        try:
            return Part(name, make_world(self.world, self.parameters), self.weight)
        except (TypeError, ValueError) as error:
            raise ValueError(f"part {name!r}: {error}") from error


def described(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Description]:
    """Description of each part by name. Raises ValueError for an invalid one."""
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
    """The parts without end, so that at every point their counts are as close to their weights as whole numbers allow.

    The next part is the one furthest behind its share; the first of them on a tie. So the first tasks of a task set are
    mixed as the whole is, and a longer task set begins with a shorter one.
    """
    total = sum(part.weight for part in parts)
    given = [0] * len(parts)
    for number in numbers(1):
        behind = [part.weight * number / total - given[place] for place, part in enumerate(parts)]
        place = behind.index(max(behind))
        given[place] += 1
        yield parts[place]
