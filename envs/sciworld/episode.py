"""One episode (the simulator's answers to the policy's actions), and its baseline policies.

Three behaviours of the simulator are corrected here. An action that fits several objects opens a question, to be
answered with a number; in the simulator any other reply then only lets time pass, whereas here the question is dropped
and the reply is played. A reply that is no action changes nothing, not even an open question. And `reset task`, which
the simulator lists among the actions although it does nothing, is no action.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.sciworld.pool import Pool
from envs.sciworld.simulator import Answer, Simulation
from envs.sciworld.variations import Variation
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task

LONGEST_ACTION = 200
"""Maximum characters of an action. The simulator's own are below 120, and its parser slows down with the length."""
UNKNOWN = ("No known action matches that input.", "Unknown action.")
QUESTION = "Ambiguous request:"
NOT_ACTIONS = ("reset task",)
FULL, FAILED = 100, -100
"""The simulator's score, in points, when the task is solved, and when it can no longer be solved."""


@dataclass(frozen=True)
class Rules:
    """What all episodes of a world share: the processes, the simplification and the description of the actions."""

    pool: Pool
    simplification: str
    grammar: str


class SciWorldEnvironment(Environment):
    """One episode in one of the pool's processes, from `reset` to `close`."""

    def __init__(self, rules: Rules, task: Task, variation: Variation) -> None:
        self._rules = rules
        self._task = task
        self._variation = variation
        self._simulation: Simulation | None = None
        self._played: list[str] = []  # all actions played
        self._effective: list[str] = []  # those that changed something; opening a question counts
        self._question: tuple[str, int] | None = None  # the action that opened it, and the number of choices
        self._points = 0
        self._moves = 0
        self._ended = False

    def reset(self) -> Observation:
        """The task and the first view. Raises SimulatorLost, as does every method that calls the simulator."""
        self._simulation = self._rules.pool.open(self._variation, self._rules.simplification)
        return self._observe(f"{self._simulation.description}\n{self._simulation.look()}")

    def step(self, action: str) -> Step:
        """Play one action; text that is no action changes nothing and is answered with the legal actions."""
        text = " ".join(action.lower().split())
        if self._ended:
            return self._refuse("The episode is over.")
        if not text or len(text) > LONGEST_ACTION or not (text.isascii() and text.isprintable()):
            return self._refuse(f"Not an action. {self._rules.grammar}")
        if text in NOT_ACTIONS:
            return self._refuse(f"{UNKNOWN[0]} {self._rules.grammar}")
        if self._question is not None:
            return self._answer_question(text)
        return self._play(text)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Next action of the path by which the package's own agent solves the task (its gold path).

        The path is found in a separate world, so asking for it changes nothing. After other actions, the oracle resumes
        behind the longest prefix of the path that was played in order, and starts over once all of it was played
        without success. This is a good guess at best, since the path does not account for what the other actions
        changed.
        """
        path = self._rules.pool.gold_path(self._variation, self._rules.simplification)
        place = played_prefix(path, self._played)
        if path[place].isdigit() and self._question is None:
            place -= 1  # its question was dropped, so ask it again
        return ScriptedAction("the plan goes on", (path[place],))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the valid actions that the simulator lists and understands, or over the answers to a question.

        Each is listed with the objects that it takes, so that kinds of actions are as frequent as the objects around
        make them: in a full room nearly all move one thing into another.
        """
        if self._question is not None:
            action = str(generator.integers(self._question[1]))
        else:
            valid = [action for action in self._running.valid_actions() if action not in NOT_ACTIONS]
            shuffled = (valid[place] for place in generator.permutation(len(valid)))
            action = next((action for action in shuffled if self._running.understands(action)), "look around")
        return ScriptedAction("a random action", (action,))

    def close(self) -> None:
        """Release the simulator's side of the episode."""
        if self._simulation is not None:
            self._rules.pool.close(self._simulation)

    @property
    def _running(self) -> Simulation:
        assert self._simulation is not None, "reset must be called first"
        return self._simulation

    def _answer_question(self, text: str) -> Step:
        """Answer the open question with a number, or drop the question and play another action."""
        assert self._question is not None
        action, choices = self._question
        if text.isdigit():
            if int(text) >= choices:
                return self._refuse(f"Answer with a number from 0 to {choices - 1}, or with another action.")
            self._question = None
            return self._play(text)
        self._running.drop_question()
        self._question = None
        step = self._play(text)
        if not step.valid:
            # Asking again takes no time and opens the same question.
            self._running.step(action)
            self._question = action, choices
        return step

    def _play(self, text: str) -> Step:
        answer = self._running.step(text)
        if answer.text.startswith(UNKNOWN):
            return self._refuse(f"{UNKNOWN[0]} {self._rules.grammar}")
        return self._record(text, answer)

    def _record(self, text: str, answer: Answer) -> Step:
        if answer.text.startswith(QUESTION):
            self._question = text, len(re.findall(r"^\d+:\t", answer.text, re.MULTILINE))
        self._played.append(text)
        changed = answer.moves != self._moves or answer.points != self._points or self._question is not None
        if changed:
            self._effective.append(text)
        gained = (answer.points - self._points) / FULL
        credit = (max(answer.points, 0) - max(self._points, 0)) / FULL
        self._points, self._moves = answer.points, answer.moves
        self._ended = answer.completed or answer.points < 0
        metrics = {"partial_credit": credit}
        if answer.points < 0:
            metrics["failed"] = 1.0
        return Step(
            self._observe(answer.text),
            {"score": gained},
            terminated=self._ended,
            effective=changed,
            success=self._points >= FULL,
            metrics=metrics,
        )

    def _refuse(self, text: str) -> Step:
        solved = self._points >= FULL
        return Step(self._observe(text), terminated=self._ended, valid=False, effective=False, success=solved)

    def _observe(self, text: str) -> Observation:
        """Observation whose state is named by the effective actions so far.

        The simulator has no name for a state; equal actions lead to equal states.
        """
        digest = hashlib.blake2b("\n".join(self._effective).encode(), digest_size=8).hexdigest()
        return Observation(text.replace("\t", " ").strip(), state=f"{self._task.id} after {digest}")


def played_prefix(path: Sequence[str], actions: Sequence[str]) -> int:
    """Length of the longest prefix of `path` that was played in order, with or without other actions in between.

    0 again once the whole path was played.
    """
    place = 0
    for action in actions:
        if action == path[place]:
            place = (place + 1) % len(path)
    return place
