"""Value iteration, where the environment publishes its model as Gymnasium's own do: `P[state][action]`.

With k actions left, the value of a state is

    V_k(s) = max over a of  sum over (p, s', r, end) of  p (success + (1 - end) d V_{k-1}(s')),    V_0 = 0,

where success is 1 if the episode ends with at least the reward that counts as success, and d = 0.999: of two paths that
are equally sure the shorter one is taken. So the plan maximises the probability of success within the actions that are
left, up to that discount, assuming an observation after every action. Where outcomes are certain, observations add
nothing, and a turn of several actions loses nothing. Where they are not, the oracle plays one action per turn although
the plan counts all remaining actions: with several actions per turn it is then too patient, and not the best policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Model = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]
"""Outcomes by state and action, each (probability, next state, reward, whether the episode ends)."""
DISCOUNT = 0.999
LONGEST = 1_000
"""Horizon limit: with more actions left than this, the plan for this many is used."""


class GamePlan:
    """The best action for every state and every number of remaining actions; computed as far as it is asked for."""

    def __init__(self, model: Model, actions: Sequence[int], success: float) -> None:
        self._model = model
        self._actions = actions
        shape = (len(model), len(actions), max(len(model[state][action]) for state in model for action in actions))
        self._gain = np.zeros(shape[:2])
        self._weight = np.zeros(shape)
        self._following = np.zeros(shape, dtype=np.intp)
        for state in model:
            for place, action in enumerate(actions):
                for outcome, (probability, following, reward, ended) in enumerate(model[state][action]):
                    if ended:
                        self._gain[state, place] += probability * (reward >= success)
                    else:
                        self._weight[state, place, outcome] = DISCOUNT * probability
                        self._following[state, place, outcome] = following
        self._values = [np.zeros(len(model))]
        self._choices: list[NDArray[np.intp]] = []

    def value(self, state: int, actions: int) -> float:
        """Discounted probability of success from `state` with `actions` actions left."""
        self._look_ahead(actions)
        return float(self._values[actions][state])

    def action(self, state: int, actions: int) -> int:
        """The best action with `actions` (at least 1) left; if they cannot suffice, as if just enough were left."""
        actions = min(actions, LONGEST)
        while actions < min(len(self._model), LONGEST) and self.value(state, actions) == 0:
            actions += 1
        self._look_ahead(actions)
        return self._actions[int(self._choices[actions - 1][state])]

    def sequence(self, state: int, actions: int, most: int) -> tuple[int, ...]:
        """The best actions, at most `most`, up to and including the first that is uncertain or may end the episode."""
        sequence: list[int] = []
        while len(sequence) < most:
            sequence.append(self.action(state, actions - len(sequence)))
            outcomes = self._model[state][sequence[-1]]
            if len({following for _, following, _, _ in outcomes}) > 1 or any(ended for *_, ended in outcomes):
                break
            state = outcomes[0][1]
        return tuple(sequence)

    def _look_ahead(self, actions: int) -> None:
        while len(self._choices) < actions:
            worth = self._gain + (self._weight * self._values[-1][self._following]).sum(axis=2)
            self._choices.append(worth.argmax(axis=1))
            self._values.append(worth.max(axis=1))
