"""`turnwise play`: a person plays an episode in the terminal and sees exactly what the policy would see.

The person takes the place of the tokenizer and the policy: text that the agent would tokenize is printed, and typed
text is used as the reply. So the format, the limits and the answers to unreadable replies are the agent's own.

A reply is one line. In formats whose replies have several lines, an empty line ends it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from turnwise import seeding
from turnwise.agent.episode import Episode
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import (
    FORMATS,
    Format,
    NativeToolsFormat,
    ReactFormat,
    ThinkAnswerFormat,
    ToolJsonFormat,
    make_format,
)
from turnwise.agent.host import RetryPolicy
from turnwise.data.trajectory import LostEpisode, Trajectory
from turnwise.errors import ConfigurationError
from turnwise.plugins import FORMAT, is_named
from turnwise.suggestions import meant
from turnwise.world import SPLITS, ScriptedAction, Task, World

PLAIN = "plain"
"""The reply form in which a line is just the answer, without a thought."""
FORMS = (*FORMATS, PLAIN)
IN_LINES = (NativeToolsFormat.name, ReactFormat.name, ToolJsonFormat.name)
"""The formats whose replies have several lines."""
ORACLE, QUIT = ":oracle", ":quit"
COMMANDS = f"{ORACLE} shows what the oracle would do, {QUIT} ends."
LAST_LINE = " An empty line ends a reply."
PATIENCE = RetryPolicy(seconds=120.0, retries=0)


class Screen:
    """A chat frame for a person instead of a policy: texts are printed instead of tokenized."""

    end_tokens: tuple[int, ...] = ()

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def say(self, text: str) -> None:
        """Print a text."""
        self._output.write(f"{text}\n")
        self._output.flush()

    def ask(self, source: TextIO, in_lines: bool) -> str | None:
        """Read the next reply: a line or, with `in_lines`, the lines up to an empty one or the end of the input.

        None at the end of the input.
        """
        self._output.write("\n> ")
        self._output.flush()
        typed = line = source.readline()
        while in_lines and line.strip() and typed.strip() not in (ORACLE, QUIT):
            line = source.readline()
            typed += line
        return typed.rstrip("\n") if typed else None

    def opening(self, system: str | None, observation: str) -> tuple[int, ...]:
        """Show the instruction and the first observation."""
        self.say(f"{system}\n" if system else "")
        return self.continuation(observation, ())

    def continuation(self, observation: str, reply: Sequence[int], *, answers_call: bool = False) -> tuple[int, ...]:
        """Show an observation."""
        self.say(observation)
        return ()

    def without_thoughts(
        self, system: str | None, observations: Sequence[str], replies: Sequence[tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Never called: nothing that a person has read is taken away."""
        raise AssertionError("nothing that a person has read is taken away")

    def decode(self, tokens: tuple[int, ...]) -> str:
        """Never called: a person's reply has no tokens."""
        raise AssertionError("a person's reply has no tokens")


def play(world: World, split: str, number: int, form: str, seed: int, source: TextIO, output: TextIO) -> None:
    """Play task `number` of a split, reading replies from `source`, until the episode or the input ends.

    Raises ConfigurationError for an unknown task or form, or for a form that cannot express the world's actions.
    """
    task = _task(world, split, number)
    if form not in FORMS and not is_named(FORMAT, form):
        raise ConfigurationError(
            f"--format must be one of {', '.join(FORMS)}; found {form!r}{meant(form, FORMS)}", "TW-unknown-format"
        )
    screen, reply_format = Screen(output), make_format(ThinkAnswerFormat.name if form == PLAIN else form, world)
    instruction = _instruction(world, reply_format, form)
    rules = EpisodeConfig(world, reply_format, world.limits_of(task), PATIENCE, screen, instruction)
    commands = COMMANDS + (LAST_LINE if form in IN_LINES else "")
    screen.say(f"{world.name}, task {task.id}, episode seed {seed}. {commands}\n")
    episode = Episode(rules, task, 0, 0, seed)
    try:
        episode.open()
        while not episode.over and (reply := _reply(episode, world, reply_format, form, source, screen)) is not None:
            episode.receive(reply, (), (), True)
            episode.settle()
        screen.say(_outcome(world, episode.result()) if episode.over else "You left the episode.")
    finally:
        episode.close()


def _task(world: World, split: str, number: int) -> Task:
    known_split = next((each for each in SPLITS if each == split), None)
    if known_split is None or number < 0:
        raise ConfigurationError(
            f"--split must be one of {', '.join(SPLITS)} and --task a number from 0; found {split!r} and {number}",
            "TW-unknown-task",
        )
    try:
        return world.tasks(known_split, number + 1)[number]
    except ValueError as error:
        raise ConfigurationError(f"--task {number}: {error}", "TW-too-few-tasks") from error


def _instruction(world: World, reply_format: Format, form: str) -> str:
    """The instruction that the policy gets, adapted to the reply form of the person."""
    if form == PLAIN:
        return f"{world.instruction}\n{world.grammar}\nReply with an action; several actions are separated by ||."
    if reply_format.functions is None:
        return reply_format.instruction(world)
    signatures = "\n".join(json.dumps(each) for each in reply_format.functions.signatures)
    return f"{reply_format.instruction(world)}\n{signatures}\nFor example: {reply_format.functions.example}"


def _reply(
    episode: Episode, world: World, reply_format: Format, form: str, source: TextIO, screen: Screen
) -> str | None:
    """The next reply, in the agent's format; None if the person quits, or if asking the oracle has lost the world."""
    while not episode.over and (typed := screen.ask(source, form in IN_LINES)) is not None:
        if typed.strip() == QUIT:
            return None
        if typed.strip() == ORACLE:
            screen.say(_oracle(episode, world, reply_format, form))
        elif form == PLAIN:
            return reply_format.write(ScriptedAction("", (typed,)))
        else:
            return typed
    return None


def _oracle(episode: Episode, world: World, reply_format: Format, form: str) -> str:
    """The oracle's reply in the current state; asking does not change the episode."""
    if "oracle" not in world.baselines:
        return f"The world {world.name!r} has no oracle."
    decision = episode.decide("oracle", seeding.generator(0, "asked by a person"))
    if decision is None:
        return "The oracle gave no answer."
    return " || ".join(decision.actions) if form == PLAIN else reply_format.write(decision)


def _outcome(world: World, result: Trajectory | LostEpisode) -> str:
    """How the episode ended, and its rewards."""
    if isinstance(result, LostEpisode):
        return f"The episode was lost: {result.reason}"
    totals = {name: result.total(name) for name in world.rewards}
    rewards = ", ".join(f"{name} {value:g}" for name, value in totals.items() if value)
    turns = f"{len(result.turns)} turn{'s' if len(result.turns) != 1 else ''}"
    return f"{result.final_observation}\n\nThe episode is over: {result.ending}, {turns}; rewards: {rewards or 'none'}."
