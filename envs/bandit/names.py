"""Names of the arms, and the split that may use each.

Every name sounds steady or daring, and is in one list only. By default each split has names of its own: what was
learned about a name in training says nothing about a test name, unless the policy knows the words from elsewhere. With
`unseen="pairs"` all names occur in training and only their pairings are held out: by a digest of its names, every tenth
pair is a validation pair and every tenth a test pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from turnwise import seeding
from turnwise.world import SPLITS, Split

UNSEEN = ("names", "pairs")
"""What validation and test arms do not share with training."""


@dataclass(frozen=True)
class Names:
    """Names that a split may use, by how they sound."""

    steady: tuple[str, ...]
    daring: tuple[str, ...]


def _names(*, steady: str, daring: str) -> Names:
    return Names(tuple(steady.split()), tuple(daring.split()))


PROFESSIONS: dict[Split, Names] = {
    "train": _names(
        steady="Judge Dentist Tailor Baker Plumber Surveyor Notary Optician "
        "Carpenter Translator Midwife Electrician Proofreader Bricklayer Pharmacist Registrar",
        daring="Stuntman Speculator Prospector Smuggler Gambler Astronaut Mountaineer Inventor "
        "Privateer Bullfighter Racer Acrobat Spy Novelist Whaler Adventurer",
    ),
    "validation": _names(
        steady="Cobbler Cashier Glazier Bookbinder Veterinarian Typist",
        daring="Buccaneer Financier Paratrooper Boxer Skydiver Trader",
    ),
    "test": _names(
        steady="Librarian Nurse Teacher Accountant Postman Clerk Miller Weaver",
        daring="Pirate Investor Entrepreneur Explorer Actor Mercenary Jockey Conjurer",
    ),
}

ANIMALS: dict[Split, Names] = {
    "train": _names(
        steady="Tortoise Cow Sheep Donkey Hen Snail Koala Goose Hamster Mule Manatee Dormouse",
        daring="Dragon Tiger Falcon Shark Cheetah Wolf Cobra Panther Griffin Wolverine Piranha Leopard",
    ),
    "validation": _names(steady="Ox Sloth Duck Rabbit", daring="Lion Hawk Crocodile Barracuda"),
    "test": _names(
        steady="Camel Pony Pigeon Hedgehog Goat Panda", daring="Basilisk Eagle Jaguar Scorpion Orca Chimera"
    ),
}

THEMES = {"professions": PROFESSIONS, "animals": ANIMALS}


def draw_pair(generator: np.random.Generator, split: Split, theme: str, unseen: str) -> tuple[str, str]:
    """Uniformly random pair of a split: a steady name and a daring one."""
    if unseen == "names":
        return _any_pair(generator, THEMES[theme][split])
    names = _all_names(theme)
    while True:
        pair = _any_pair(generator, names)
        if split_of_pair(pair) == split:
            return pair


@cache
def split_of_pair(pair: tuple[str, str]) -> Split:
    """The split that a pair belongs to when only pairs are held out."""
    draw = seeding.derive(0, "bandit split", *pair) % 10
    return "validation" if draw == 8 else "test" if draw == 9 else "train"


def _any_pair(generator: np.random.Generator, names: Names) -> tuple[str, str]:
    steady, daring = generator.integers((len(names.steady), len(names.daring)))
    return names.steady[steady], names.daring[daring]


@cache
def _all_names(theme: str) -> Names:
    parts = [THEMES[theme][split] for split in SPLITS]
    return Names(
        tuple(name for part in parts for name in part.steady), tuple(name for part in parts for name in part.daring)
    )
