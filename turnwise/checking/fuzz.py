"""Fuzz replies that no world expects, as an untrained policy or an adversary may write them."""

from __future__ import annotations

import numpy as np

from turnwise import seeding
from turnwise.world import World

HUNDRED_KILOBYTES = 100_000
LEAST_NOISE = 10
"""Minimum number of random replies at each tested point of an episode."""

FIXED = (
    "",
    " ",
    "\n\n\t",
    "\x00",
    "\x1b[2J",
    "None",
    "nan",
    "-1",
    "99999999999999999999999999",
    "{}",
    '{"action": null}',
    "%s %n {0} {} \\",
    "'; drop table worlds; --",
    "../../etc/passwd",
    "||",
    "a || b",
    "[",
    "]",
    "x[",
    "x[y]z",
    "[[[[]]]]",
    "<answer>",
    "</answer>",
    "<answer><answer>x</answer></answer>",
    "<think>" * 500 + "</think>" * 400,
    "(" * 5000,
    "ｌｅｆｔ",
    "🧑‍🚀🏳️‍🌈",
    "\u202eright to left",
    "e\u0301\u0323" * 50,
    "İıſß",
    "\ufffd\ufeff\u2028",
    "x" * HUNDRED_KILOBYTES,
    "word " * (HUNDRED_KILOBYTES // 5),
    "√" * (HUNDRED_KILOBYTES // 3),
)


def replies(world: World, seed: int, place: str, offered: str, count: int) -> list[str]:
    """At least `count` replies: fixed ones, corruptions of the valid action `offered`, misused verbs, and random ones.

    Random replies are random characters, or copies of `offered` with one character replaced. `place` names the point of
    the episode and seeds them, so each point has different ones.
    """
    spoiled = [offered[:-1], offered + offered, offered + "\x00", "\ufeff" + offered, offered[::-1], f"<{offered}>"]
    verbs = [
        text
        for verb in sorted(world.verbs or ())
        for text in (verb, f"{verb}[", f"{verb}[]", f"{verb}[[]]", f"{verb}[\x00]", f"{verb}[{'z ' * 50_000}]")
    ]
    chosen = [*FIXED, *spoiled, *verbs]
    missing = max(LEAST_NOISE, count - len(chosen))
    return [*chosen, *(_noise(seeding.generator(seed, "fuzz", place, number), offered) for number in range(missing))]


def _noise(generator: np.random.Generator, offered: str) -> str:
    """`offered` with one character replaced, or 1 to 59 random characters.

    These are uniform over Unicode without surrogates, which no decoded reply can contain.
    """
    if offered and generator.integers(4) == 0:
        place = int(generator.integers(len(offered)))
        return offered[:place] + chr(int(generator.integers(32, 127))) + offered[place + 1 :]
    points = generator.integers(0, 0x110000 - 0x800, size=int(generator.integers(1, 60)))
    return "".join(chr(point if point < 0xD800 else point + 0x800) for point in points.tolist())
