"""The optimal policy of a slippery lake under limits, by finite-horizon dynamic programming.

A turn is an open-loop choice: a sequence q of 1 to k actions, played without an observation in between. With t turns
and a actions left, in cell s, and P_q the product of the sequence's transition matrices (Gymnasium's own model),

    V_t(s, a) = max over q of  sum over s' of P_q(s' | s) V_{t-1}(s', a - |q|),    V_0(goal, .) = 1, V_0(other, .) = 0,

is the probability of reaching the goal. Holes and the goal are absorbing, so a sequence may run past the end at no
cost. Among sequences of equal probability the plan takes the one with the fewest expected actions until the episode
ends, then the fewest expected turns, then the first in this order: shorter sequences first, left before down before
right before up.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envs.frozen_lake.boards import GOAL, HOLE, LakeBoard

LONGEST_SEQUENCE = 5
"""Limit on actions per turn in the plan's search: there are 4^n sequences of n actions."""
TOLERANCE = 1e-9
"""Values closer than this are a tie, so that rounding does not choose between equally good sequences."""


def make_lake(board: LakeBoard, success_rate: float) -> Any:
    """Gymnasium's lake without wrappers, whose limit of 100 steps would truncate episodes unknown to the agent."""
    environment = gymnasium.make(
        "FrozenLake-v1",
        desc=list(board.rows),
        is_slippery=success_rate < 1,
        success_rate=success_rate,
        max_episode_steps=-1,
        disable_env_checker=True,
    )
    return environment.unwrapped


@lru_cache(maxsize=256)
def plan(board: LakeBoard, success_rate: float, turns: int, actions_per_turn: int, actions: int) -> LakePlan:
    """Plan for at most `turns` turns and `actions` actions, cached: all episodes on a board need the same one."""
    return LakePlan(board, success_rate, turns, actions_per_turn, actions)


class LakePlan:
    """Optimal sequences for every cell and every number of remaining turns and actions up to those given."""

    def __init__(self, board: LakeBoard, success_rate: float, turns: int, actions_per_turn: int, actions: int) -> None:
        self._sequences = [
            sequence for length in range(1, actions_per_turn + 1) for sequence in product(range(4), repeat=length)
        ]
        self._moves = _transitions(board, success_rate)
        self._alive = np.array([letter not in (GOAL, HOLE) for letter in board.cells], dtype=np.float64)[:, None]
        self._longest = actions_per_turn
        # Axis 0: probability of the goal, expected actions, expected turns; then cells; then actions left, from 0.
        end = np.zeros((3, len(board.cells), actions + 1))
        end[0, board.goal] = 1.0
        self._values = [end]
        self._choices: list[NDArray[np.intp]] = []
        for _ in range(turns):
            self._look_one_turn_back()

    def sequence(self, cell: int, turns: int, actions: int) -> tuple[int, ...]:
        """Best sequence of actions for this turn, with `turns` (at least 1) and `actions` (at least 1) left."""
        return self._sequences[int(self._choices[turns - 1][cell, actions])]

    def probability(self, cell: int, turns: int, actions: int) -> float:
        """Probability that the optimal policy reaches the goal from `cell` with `turns` and `actions` left."""
        return float(self._values[turns][0, cell, actions])

    def _look_one_turn_back(self) -> None:
        candidates = self._candidates(self._values[-1])
        choice = _first_best(candidates)
        values = np.take_along_axis(candidates, choice[None, None], axis=0)[0]
        values[:, :, 0] = self._values[0][:, :, 0]
        self._choices.append(choice)
        self._values.append(values)

    def _candidates(self, after: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of each sequence when `after` holds the values that follow it: [sequences, 3, cells, actions + 1]."""
        candidates = []
        current = after[None]
        for length in range(1, self._longest + 1):
            # Prepending an action keeps the order of `product`: the first action is the slowest index.
            current = (self._moves[:, None, None] @ current[None]).reshape(4**length, *after.shape)
            current[:, 1] += self._alive
            affordable = np.full_like(current, np.inf)
            affordable[:, 0] = -1.0
            affordable[..., length:] = current[..., : after.shape[-1] - length]
            candidates.append(affordable)
        together = np.concatenate(candidates)
        together[:, 2] += self._alive
        return together


def _first_best(candidates: NDArray[np.float64]) -> NDArray[np.intp]:
    """Index of the best sequence, [cells, actions + 1]: highest probability, then fewest actions, then fewest turns."""
    best = candidates[:, 0] >= candidates[:, 0].max(axis=0) - TOLERANCE
    for cost in (candidates[:, 1], candidates[:, 2]):
        among_best = np.where(best, cost, np.inf)
        best &= among_best <= among_best.min(axis=0) + TOLERANCE
    return best.argmax(axis=0)


def _transitions(board: LakeBoard, success_rate: float) -> NDArray[np.float64]:
    """Gymnasium's model as transition matrices, [4 actions, cells, cells], whose rows sum to 1."""
    model = make_lake(board, success_rate).P
    matrices = np.zeros((4, len(board.cells), len(board.cells)))
    for cell, action in product(range(len(board.cells)), range(4)):
        for probability, following, _reward, _terminated in model[cell][action]:
            matrices[action, cell, following] += probability
    return matrices
