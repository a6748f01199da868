"""The world: pairs of arms as tasks, one pull as an episode, and its two baseline policies.

The low arm has a steady name and always pays `low_payoff`. The high arm has a daring name and pays `high_payoff` with
probability `high_probability`, else nothing. RAGEN uses 0.1 (0.15 in its paper) against 1 with probability 0.25, so the
high arm pays more on average but pays nothing three times out of four.

What a policy can learn here: only the names distinguish the arms within an episode, and an episode is over after one
pull. From rewards alone a policy can learn how the names of the training arms pay, despite noise that makes the worse
arm look better in most comparisons. A policy trained on nothing else cannot know names that it has never read: on the
test names, by default all new, it is at chance, 50%. A policy that was trained on language can transfer the rule "the
daring arm pays more" to them, which is what the paper tests. `unseen="pairs"` is easier: the test joins known names in
new pairs, and a small policy can succeed.

Differs from RAGEN (arXiv 2504.20073): the names are our own, and there are many pairs instead of one or a dozen; no
name is in two splits; every reply of a group draws its own payoff; success is choosing the better arm, not being lucky.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from envs.bandit.names import THEMES, UNSEEN, draw_pair
from turnwise import seeding
from turnwise.world import (
    Column,
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    one_of,
    require_family,
    share,
    true_or_false,
)


class Bandit(World):
    """Pull one of two named arms, once; success is to pull the one that pays more on average.

    Parameters: `theme`, the names, "professions" or "animals"; `unseen`, what of the held-out arms does not occur in
    training, "names" or only "pairs"; `low_payoff`, what the low arm always pays; `high_payoff` and `high_probability`,
    what the high arm pays and how often, both payoffs from 0 to 1; `swapped`, whether the steady name is on the high
    arm instead, against what the names suggest (RAGEN's reversed bandit).

    A task fixes two arms and their order but no payoff: every episode draws its own, and results at different payoffs
    are on the same arms.
    """

    name: ClassVar[str] = "bandit"
    version: ClassVar[str] = "1"
    blocks = False
    oracle_success: ClassVar[float] = 1.0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ragen": {"low_payoff": 0.1, "high_payoff": 1.0, "high_probability": 0.25},
        "ragen-paper": {"low_payoff": 0.15, "high_payoff": 1.0, "high_probability": 0.25},
        "ragen-swapped": {"low_payoff": 0.1, "high_payoff": 1.0, "high_probability": 0.25, "swapped": True},
    }
    rewards: ClassVar[Mapping[str, Reward]] = {"payoff": Reward("what the arm paid", "outcome", 1.0)}
    columns: ClassVar[tuple[Column, ...]] = (
        Column("better arm", "success", description="Pulls of the arm that pays more on average."),
        Column("payoff", "payoff", percent=False),
        Column("format", "format"),
    )
    instruction = (
        "You pull one of two arms, once. Each pays by a rule of its own, which its name hints at. "
        "Pull the arm that pays more on average."
    )
    """The payoffs are left for the policy to learn."""
    grammar = "An action is the name of an arm."
    limits = Limits(turns=1, actions_per_turn=1, actions=1)

    def __init__(
        self,
        *,
        theme: str = "professions",
        unseen: str = "names",
        low_payoff: float = 0.1,
        high_payoff: float = 1.0,
        high_probability: float = 0.25,
        swapped: bool = False,
    ) -> None:
        self.theme = one_of("theme", theme, THEMES)
        self.unseen = one_of("unseen", unseen, UNSEEN)
        self.swapped = true_or_false("swapped", swapped)
        self.low_payoff = share("low_payoff", low_payoff)
        self.high_payoff = share("high_payoff", high_payoff)
        self.high_probability = share("high_probability", high_probability)
        if self.low_payoff == self.high_payoff * self.high_probability:
            raise ValueError(
                "one arm must pay more on average; found low_payoff equal to high_payoff * high_probability, "
                f"{self.low_payoff}: change one of the three"
            )
        self._family = f"{self.name}/{self.version}/{self.theme}-unseen-{self.unseen}/"

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` tasks of a split, which is unbounded, so pairs recur.

        Tag `first`: the kind of the first arm.

        A policy that prefers a position over a name shows as a difference between `first: steady` and `first: daring`.
        """
        return [self._task(split, number) for number in range(count)]

    def withheld_names(self) -> frozenset[str]:
        """The names of arms that no training task has, where names are held out and not pairs alone."""
        held_out = [names for parts in THEMES.values() for split, names in parts.items() if split != "train"]
        return frozenset(name for names in held_out for name in (*names.steady, *names.daring))

    def make(self, task: Task, seed: int) -> BanditEnvironment:
        """Environment on the task's arms; `seed` drives the payoff. Raises ValueError for a task of another world."""
        require_family(task, self._family)
        steady, daring, steady_first = self._arms(task.seed, task.split)
        return BanditEnvironment(self, task, steady, daring, steady_first, seed)

    def _task(self, split: Split, number: int) -> Task:
        name = f"{self._family}{split}/{number}"
        seed = seeding.derive(0, name)
        _, _, steady_first = self._arms(seed, split)
        return Task(self.name, name, split, seed, {"first": "steady" if steady_first else "daring"})

    def _arms(self, seed: int, split: Split) -> tuple[str, str, bool]:
        """The steady name, the daring name, and whether the steady one is listed first."""
        generator = seeding.generator(seed, "bandit arms")
        steady, daring = draw_pair(generator, split, self.theme, self.unseen)
        return steady, daring, bool(generator.integers(2))


class BanditEnvironment(Environment):
    """One episode: one pull."""

    def __init__(self, world: Bandit, task: Task, steady: str, daring: str, steady_first: bool, seed: int) -> None:
        self._world = world
        self._arms = (steady, daring) if steady_first else (daring, steady)
        self._low, self._high = (daring, steady) if world.swapped else (steady, daring)
        self._lucky = bool(seeding.generator(seed, "bandit payoff", task.id).random() < world.high_probability)
        self._pulled: str | None = None

    def reset(self) -> Observation:
        """The names of the two arms."""
        return self._observe()

    def step(self, action: str) -> Step:
        """Pull an arm by its name, in any case; other text changes nothing."""
        arm = action.strip().capitalize()
        if self._pulled is not None:
            return Step(self._observe(), terminated=True, valid=False, effective=False, success=self._succeeded)
        if arm not in self._arms:
            refusal = self._observe(f"Not an arm. Legal: {' or '.join(self._arms)}.\n")
            return Step(refusal, valid=False, effective=False)
        self._pulled = arm
        rewards = {"payoff": self._payoff(arm)}
        return Step(self._observe(), rewards, terminated=True, success=self._succeeded)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The arm with the higher expected payoff, whatever it pays in this episode."""
        return ScriptedAction(f"{self._better} pays more", (self._better,))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the two arms."""
        return ScriptedAction("a random arm", (self._arms[generator.integers(2)],))

    @property
    def _better(self) -> str:
        world = self._world
        return self._high if world.high_payoff * world.high_probability > world.low_payoff else self._low

    @property
    def _succeeded(self) -> bool:
        return self._pulled == self._better

    def _payoff(self, arm: str) -> float:
        if arm == self._low:
            return self._world.low_payoff
        return self._world.high_payoff if self._lucky else 0.0

    def _observe(self, preface: str = "") -> Observation:
        first, second = self._arms
        if self._pulled is None:
            return Observation(f"{preface}Arms: {first}, {second}", state=f"{first}, {second}")
        payoff = self._payoff(self._pulled)
        return Observation(f"{self._pulled} paid {payoff:g}", state=f"{self._pulled} pulled")
