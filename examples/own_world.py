"""A world of one's own, in one file: pay an amount exactly, coin by coin. Checked, trained on and read back.

python examples/own_world.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

import turnwise as tw
from turnwise import seeding

COINS = {"1": 1, "2": 2, "5": 5, "10": 10}


class Till(tw.World):
    """Amounts of 1 to 19 that are paid with four kinds of coins."""

    name, version, oracle_success = "till", "1", 1.0
    instruction = "Pay the amount exactly, one coin at a time."
    grammar = "1, 2, 5 or 10."
    limits = tw.Limits(turns=5)
    rewards: ClassVar = {"paid": tw.Reward("1 when the amount is paid exactly", "outcome", 1.0)}

    def tasks(self, split: tw.Split, count: int) -> Sequence[tw.Task]:
        """The first of one fixed order, named for ever; the amounts of a split are its own."""
        names = [f"till/1/{split}/{number}" for number in range(count)]
        return [tw.Task("till", name, split, seeding.derive(0, name)) for name in names]

    def make(self, task: tw.Task, seed: int) -> Payment:
        """The problem comes from the task; noise within the episode would come from the seed."""
        first, count = {"train": (1, 10), "validation": (11, 4), "test": (15, 5)}[task.split]
        return Payment(first + task.seed % count)


class Payment(tw.Environment):
    """One amount that is being paid."""

    def __init__(self, amount: int) -> None:
        self.left = amount

    def reset(self) -> tw.Observation:
        """The amount."""
        return self._observe()

    def step(self, action: str) -> tw.Step:
        """Pay a coin. Whatever is written is answered, and what is illegal changes nothing."""
        if action.strip() not in COINS:
            return tw.Step(self._observe(f"No coin. Legal: {', '.join(COINS)}. "), valid=False, effective=False)
        self.left -= COINS[action.strip()]
        paid = self.left == 0
        return tw.Step(self._observe(), {"paid": float(paid)}, terminated=self.left <= 0, success=paid)

    def oracle(self, remaining: tw.Remaining) -> tw.ScriptedAction:
        """The largest coin that fits: demonstrations are the oracle's, and every table has its score."""
        coin = [coin for coin, value in COINS.items() if value <= self.left][-1]
        return tw.ScriptedAction(f"{coin} fits into {self.left}", (coin,))

    def random(self, generator: np.random.Generator, remaining: tw.Remaining) -> tw.ScriptedAction:
        """Uniform over the four coins."""
        return tw.ScriptedAction("any coin", (str(generator.choice(list(COINS))),))

    def _observe(self, preface: str = "") -> tw.Observation:
        return tw.Observation(f"{preface}{self.left} left to pay.", state=str(self.left))


def main() -> None:
    """Check the world, run an ablation on it, and print what it found."""
    # By its name and not as `Till()`: a script's module is called __main__, which no other process can import.
    checked = tw.check_world(tw.make_world("own_world:Till", {}))
    print(checked.lines()[-1])
    experiment = tw.load(
        Path(__file__).with_name("small.yaml"),
        {
            # A stage knows a world by its module's name, so that its code becomes part of the cache key.
            "world": {"name": "own_world:Till", "parameters": {}},
            "rewards": {"paid": {"level": "outcome", "weight": 1.0}},
            "agent": {"context_tokens": 256},
            "ablation": {"name": "own-world", "variants": ["grpo-or"]},
        },
    )
    done = tw.ablation(experiment)
    print(done.report.table()[["row", "column", "value", "low", "high"]].to_string(index=False))
    print(f"open {done.report.page}")


if __name__ == "__main__":
    main()
