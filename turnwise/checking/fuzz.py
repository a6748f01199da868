"""Replies that no world expects: what a policy at the beginning of its training, or an adversary, may write."""

from __future__ import annotations

from turnwise import seeding
from turnwise.world import World

HUNDRED_KILOBYTES = 100_000

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


def replies(world: World, seed: int, offered: str) -> list[str]:
    """The fixed ones, random characters, spoiled copies of an action that a player offers, and the verbs misused."""
    random = ["".join(_characters(seed, number)) for number in range(10)]
    spoiled = [offered[:-1], offered + offered, offered + "\x00", "\ufeff" + offered, offered[::-1], f"<{offered}>"]
    verbs = [
        text
        for verb in sorted(world.verbs or ())
        for text in (verb, f"{verb}[", f"{verb}[]", f"{verb}[[]]", f"{verb}[\x00]", f"{verb}[{'z ' * 50_000}]")
    ]
    return [*FIXED, *random, *spoiled, *verbs]


def _characters(seed: int, number: int) -> list[str]:
    """Uniform over all of Unicode but the surrogates, which no decoded reply can hold."""
    generator = seeding.generator(seed, "fuzz", number)
    points = generator.integers(0, 0x110000 - 0x800, size=int(generator.integers(1, 60)))
    return [chr(point if point < 0xD800 else point + 0x800) for point in points.tolist()]
