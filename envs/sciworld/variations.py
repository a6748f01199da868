"""ScienceWorld's thirty types of task, their variations, and the split of each.

A type of task, such as `boil`, has variations that differ in the substance, the plant, the rooms. The package splits
them by number: the first half for training, the third quarter for validation, the rest for testing; later variations
contain things that earlier ones do not. Only the simulator knows the counts, and starting it takes seconds, so they are
listed here; a test compares the counts and the rule with the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.world import Split

PACKAGE_VERSION = "1.2.3"
"""Version of `scienceworld` to which the counts, the variations behind the numbers and the gold paths belong."""

COUNTS = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "grow-plant": 126,
    "grow-fruit": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
}
"""The number of variations of each type, in the package's order."""


@dataclass(frozen=True)
class Variation:
    """One problem of the simulator: a type of task and the number of its variation."""

    type: str
    number: int


def numbers(type: str, split: Split) -> range:
    """Numbers of a type's variations that belong to a split, by the package's own rule."""
    count = COUNTS[type]
    quarter = count // 4
    bounds: dict[Split, tuple[int, int]] = {
        "train": (0, 2 * quarter),
        "validation": (2 * quarter, 3 * quarter),
        "test": (3 * quarter, count),
    }
    return range(*bounds[split])
