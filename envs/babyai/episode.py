"""One episode of one level, and its baseline policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import DIR_TO_VEC

from envs.babyai.adviser import Advice, Adviser, Place, place_of
from envs.babyai.levels import content, start
from envs.babyai.view import HERE, moved, view_of, way, ways
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step

ACTIONS = {
    "turn left": Actions.left,
    "turn right": Actions.right,
    "move forward": Actions.forward,
    "pick up": Actions.pickup,
    "drop": Actions.drop,
    "toggle": Actions.toggle,
}
LEGAL = ", ".join(ACTIONS)
GO_TO = "go to "


class LevelEnvironment(Environment):
    """One episode. Its only limit is the level's own limit on steps, by which the reward is scaled."""

    def __init__(self, level: str, seed: int, *, go_to: bool) -> None:
        self._name = level
        self._seed = seed
        self._go_to = go_to
        self._level = start(level, seed)
        self._view = view_of(self._level.gen_obs()["image"])
        self._state = content(self._level)
        self._played: list[Actions] = []
        self._adviser: Adviser | None = None
        self._terminated = self._truncated = self._success = False

    def reset(self) -> Observation:
        """The mission and what is in view."""
        return self._observe()

    def step(self, action: str) -> Step:
        """Play one action, in any case; other text changes nothing and is answered with the legal actions."""
        text = " ".join(action.lower().split())
        if self._terminated or self._truncated:
            return self._refuse("The episode is over.")
        if text in ACTIONS:
            return self._play([ACTIONS[text]])
        if not self._go_to:
            return self._refuse(f"Not an action. Legal: {LEGAL}.")
        if not text.startswith(GO_TO):
            return self._refuse(f"Not an action. Legal: {LEGAL}, go to COLOR THING.")
        path = way(self._view, text.removeprefix(GO_TO).removeprefix("the "))
        if path is None:
            reachable = ", ".join(GO_TO + name for name in ways(self._view)) or "only turn and move"
            return self._refuse(f"There is no such thing in view, or no free way to it. You can {reachable}.")
        return self._play(path)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Next action of the package's bot (see `adviser`); the thought says where its target is.

        With `go to`, the bot's moves towards an object become one action if `go to` leads to a pose that they pass.
        """
        self._adviser = self._adviser or Adviser(self._name, self._seed)
        advice = self._adviser.advise(self._played)
        if advice is None:
            return ScriptedAction("lost", ("turn left",))
        walk = self._walk(advice, self._adviser) if self._go_to else None
        names = {number: name for name, number in ACTIONS.items()}
        return ScriptedAction(self._thought(advice), (walk or names[advice.action],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the six actions and, with `go to`, over the names of things to which there is a way in view."""
        choices = [*ACTIONS, *(GO_TO + name for name in (ways(self._view) if self._go_to else ()))]
        return ScriptedAction("a random action", (choices[int(generator.integers(len(choices)))],))

    def _play(self, actions: Sequence[Actions]) -> Step:
        """Play the package's actions in order until they or the episode end."""
        before = self._state
        reward = 0.0
        for action in actions:
            observation, won, self._terminated, timed_out, _ = self._level.step(action)
            reward = float(won)
            self._truncated = timed_out and not self._terminated
            self._played.append(action)
            self._view = view_of(observation["image"])
            if self._terminated or self._truncated:
                break
        self._success = self._terminated and reward > 0
        self._state = content(self._level)
        effective = self._terminated or self._state != before
        return Step(
            self._observe(self._verdict() or ("" if effective else "That changed nothing.\n")),
            {"mission": reward} if self._terminated else {},
            self._terminated,
            self._truncated,
            effective=effective,
            success=self._success,
        )

    def _verdict(self) -> str:
        """Message at the end of an episode; empty before it."""
        if self._terminated:
            return "The mission is accomplished.\n" if self._success else "The mission has failed.\n"
        return "The level allows no more steps.\n" if self._truncated else ""

    def _refuse(self, text: str) -> Step:
        refusal = self._observe(f"{text}\n")
        return Step(refusal, {}, self._terminated, self._truncated, valid=False, effective=False, success=self._success)

    def _observe(self, preface: str = "") -> Observation:
        carried = self._level.carrying
        carries = f"a {carried.color} {carried.type}" if carried else "nothing"
        text = f"{preface}Mission: {self._level.mission}\n{self._view}\nYou carry: {carries}"
        return Observation(text, state=self._state)

    def _walk(self, advice: Advice, adviser: Adviser) -> str | None:
        """The `go to` whose final pose comes latest on the bot's path of moves; None when the path passes none."""
        paths = {name: path for name, path in ways(self._view).items() if path and _is_meant(name, advice.aim)}
        if not paths:
            return None
        places = adviser.path(max(map(len, paths.values())))
        ends = {self._end(path): name for name, path in paths.items()}
        last = next((place for place in reversed(places) if place in ends), None)
        return GO_TO + ends[last] if last else None

    def _end(self, actions: Sequence[Actions]) -> Place:
        """Position and direction to which a free path leads."""
        pose = HERE
        for action in actions:
            pose = moved(pose, action)
        (right, forward), heading = pose
        (column, row), direction = place_of(self._level)
        ahead, beside = DIR_TO_VEC[direction], DIR_TO_VEC[(direction + 1) % 4]
        place = (column, row) + forward * ahead + right * beside
        return (int(place[0]), int(place[1])), (direction + heading) % 4

    def _thought(self, advice: Advice) -> str:
        """Reason for the advised action in terms of the observation: where the bot's target is."""
        ahead, carried = self._view.ahead, self._level.carrying
        if advice.action in (Actions.pickup, Actions.toggle):
            return f"{ahead.name if ahead else 'nothing'} ahead"
        if advice.action == Actions.drop and carried:
            return f"put the {carried.color} {carried.type} here"
        if not advice.aim:
            return "make room"
        targets = (thing for thing in self._view.things if _is_meant(thing.name, advice.aim))
        nearest = next(targets, None)
        return f"{nearest.name} {nearest.place}" if nearest else f"no {advice.aim} in view"


def _is_meant(name: str, aim: str) -> bool:
    """Whether an object's name fits the bot's target: `red ball` fits `ball`, `red object` and `red ball`.

    Nothing fits an empty target.
    """
    return bool(aim) and set(aim.split()) <= {*name.split(), "object"}
