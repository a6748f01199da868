"""One episode (a list of recipes, an inventory and a goal), and its baseline policies."""

from __future__ import annotations

from collections import Counter

import numpy as np

from envs.textcraft.commands import LEGAL, Craft, Get, read
from envs.textcraft.problems import CraftingProblem
from envs.textcraft.recipes import Recipe, amount_of, depth, tree
from envs.textcraft.shortage import crafts, missing
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step


class CraftingEnvironment(Environment):
    """One episode. Only listed items exist: an item that no listed recipe makes is raw and can be taken."""

    def __init__(self, problem: CraftingProblem, recipes: tuple[Recipe, ...]) -> None:
        self._problem = problem
        self._recipes = {recipe.product: recipe for recipe in recipes}
        raw_items = (item for recipe in recipes for item, _ in recipe.ingredients if item not in self._recipes)
        self._raw = tuple(dict.fromkeys(raw_items))
        self._inventory: Counter[str] = Counter()
        self._depth_reached = 0

    def reset(self) -> Observation:
        """The recipes and the goal."""
        lines = [recipe.command() for recipe in self._recipes.values()]
        goal = amount_of(self._problem.goal, self._problem.wanted)
        return self._observe("\n".join(["Recipes:", *lines, f"Goal: {goal}"]))

    def step(self, action: str) -> Step:
        """Play one command. An impossible one changes nothing and is answered with the reason."""
        if self._solved:
            return self._refuse("The episode is over.")
        command = read(action)
        if command is None:
            return self._refuse(f"Not an action. Legal: {LEGAL}. N is a number from 1 to 9999.")
        if isinstance(command, Get):
            return self._get(command)
        if isinstance(command, Craft):
            return self._craft(command)
        return Step(self._observe(f"You have {_listed(self._inventory) or 'nothing'}."), effective=False)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Take what is missing at the bottom of the goal's recipe tree, then craft upwards.

        This takes as few commands as possible. The thought lists what is missing from the goal down, and the action
        concerns the last item of the list.
        """
        shortage = missing(self._problem.goal, self._problem.wanted, self._inventory, self._recipes)
        if not shortage:
            return ScriptedAction("nothing is missing", ("inventory",))
        item, amount = shortage[-1]
        recipe = self._recipes.get(item)
        action = recipe.command(crafts(recipe, amount)) if recipe else f"get {amount_of(item, amount)}"
        return ScriptedAction("missing " + ", ".join(amount_of(*each) for each in shortage), (action,))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the listed amounts of raw items, and the listed recipes whose ingredients are held.

        An amount that several recipes ask for counts once; a recipe is used once. `inventory` is left out, since it
        changes nothing.
        """
        amounts = [each for recipe in self._recipes.values() for each in recipe.ingredients if each[0] in self._raw]
        choices = [f"get {amount_of(*each)}" for each in dict.fromkeys(amounts)]
        choices += [recipe.command() for recipe in self._recipes.values() if self._holds(recipe)]
        return ScriptedAction("a random command", (choices[int(generator.integers(len(choices)))],))

    def _get(self, command: Get) -> Step:
        if command.item in self._recipes:
            return self._refuse(f"That must be crafted: {self._recipes[command.item].command()}.")
        if command.item not in self._raw:
            return self._refuse(f"There is no such item here. You can get {', '.join(self._raw)}.")
        self._inventory[command.item] += command.amount
        return Step(self._observe(f"Got {amount_of(command.item, command.amount)}."))

    def _craft(self, command: Craft) -> Step:
        recipe = self._recipes.get(command.product)
        if recipe is None:
            return self._refuse(f"No recipe makes that. The recipes make {', '.join(self._recipes)}.")
        times = crafts(recipe, command.amount)
        used = {item: amount * times for item, amount in recipe.ingredients}
        if command.amount != recipe.count * times or command.ingredients != used:
            return self._refuse(f"The recipe is: {recipe.command()}. All numbers may be multiplied by the same one.")
        if lacking := self._lacks(used):
            return self._refuse(f"You are missing {lacking}.")
        # Unary plus removes the items that were used up.
        self._inventory = +(self._inventory - Counter(used))
        self._inventory[recipe.product] += command.amount
        message = f"Crafted {amount_of(recipe.product, command.amount)}."
        rewards = {"goal": 1.0} if self._solved else {}
        text = f"{message} The goal is reached." if self._solved else message
        return Step(
            self._observe(text),
            rewards,
            terminated=self._solved,
            success=self._solved,
            metrics=self._progress(recipe),
        )

    def _progress(self, recipe: Recipe) -> dict[str, float]:
        """Increase in depth of the deepest product of the goal's recipe tree crafted so far, as a metric."""
        product_depth = depth(recipe.product) if recipe in tree(self._problem.goal) else 0
        gained = max(0, product_depth - self._depth_reached)
        self._depth_reached += gained
        return {"depth_reached": float(gained)} if gained else {}

    def _holds(self, recipe: Recipe) -> bool:
        """Whether all ingredients are held for using a recipe once."""
        return all(self._inventory[item] >= amount for item, amount in recipe.ingredients)

    def _lacks(self, needed: dict[str, int]) -> str:
        """The needed items that are not held, in words; empty when all are held."""
        return _listed(Counter(needed) - self._inventory)

    def _refuse(self, text: str) -> Step:
        return Step(self._observe(text), terminated=self._solved, valid=False, effective=False, success=self._solved)

    def _observe(self, text: str) -> Observation:
        return Observation(text, state=f"{self._problem.id} held: {_listed(self._inventory)}")

    @property
    def _solved(self) -> bool:
        return self._inventory[self._problem.goal] >= self._problem.wanted


def _listed(amounts: Counter[str]) -> str:
    """Text such as `2 oak log, 1 stick`, sorted by name so that equal inventories give equal texts."""
    return ", ".join(amount_of(item, amounts[item]) for item in sorted(amounts))
