"""The check that a world leaves its process as it was: its working directory, its environment, what it prints."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stdout
from functools import partial
from typing import TypeVar

import numpy as np

from turnwise.checking.playing import baseline_policy, open_episode, play_turns
from turnwise.checking.report import Broken, Doubtful, shortened
from turnwise.checking.subject import Subject
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step, Task

Made = TypeVar("Made")


class _Watch:
    """Compares the process before and after each call of a world, and remembers what a call has printed."""

    def __init__(self) -> None:
        self.folder, self.environment = os.getcwd(), dict(os.environ)
        self.changed: dict[str, str] = {}
        """What a call has changed in the environment, and the call."""
        self.printed: dict[str, str] = {}
        """By call, the first text that it has printed."""

    def call(self, name: str, call: Callable[[], Made]) -> Made:
        """What the call returns. Raises Broken where it has changed the working directory."""
        said = io.StringIO()
        with redirect_stdout(said):
            made = call()
        before, self.folder = self.folder, _folder()
        if self.folder != before:
            raise Broken(
                "a world must leave the working directory as it was, by which relative paths are read; "
                f"{name} changed it from {before} to {self.folder}: name files by absolute paths"
            )
        for variable in sorted(os.environ.keys() | self.environment.keys()):
            if os.environ.get(variable) != self.environment.get(variable):
                self.changed.setdefault(variable, name)
        if said.getvalue():
            self.printed.setdefault(name, said.getvalue())
        return made


class _Watched(Environment):
    """An environment, each call of which is watched."""

    def __init__(self, environment: Environment, watch: _Watch) -> None:
        self._environment, self._watch = environment, watch

    def reset(self) -> Observation:
        return self._watch.call("reset", self._environment.reset)

    def step(self, action: str) -> Step:
        return self._watch.call("step", partial(self._environment.step, action))

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        return self._watch.call("oracle", partial(self._environment.oracle, remaining))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return self._watch.call("random", partial(self._environment.random, generator, remaining))

    def decide(self, baseline: str, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return self._watch.call(baseline, partial(self._environment.decide, baseline, generator, remaining))

    def close(self) -> None:
        self._watch.call("close", self._environment.close)


def process_is_left_alone(subject: Subject) -> str:
    """Check that playing leaves the working directory as it was.

    Changed environment variables, and what is printed, get a warning: every other library of the process sees the
    first, and the second stands between the lines of a progress display.
    """
    tasks = subject.sample
    watch = _Watch()
    for task in tasks:
        for baseline in subject.policies:
            _play(subject, task, baseline, watch)
    told = [f"{call} prints {shortened(text.strip())}" for call, text in watch.printed.items()]
    told += [f"{call} changes the environment variable {name}" for name, call in watch.changed.items()]
    if told:
        raise Doubtful("; ".join(told))
    return f"{len(tasks)} tasks leave the working directory and the environment as they were, and print nothing"


def _play(subject: Subject, task: Task, baseline: str, watch: _Watch) -> None:
    made = watch.call("make", partial(open_episode, subject.world, task, subject.seed))
    with closing(_Watched(made, watch)) as environment:
        first, decide = environment.reset(), baseline_policy(subject.world, task, subject.seed, baseline)
        for _ in play_turns(environment, first, subject.world.limits_of(task), decide):
            pass


@contextmanager
def process_put_back() -> Iterator[None]:
    """Put the working directory and the environment back at the end of a check, for those that follow."""
    folder, environment = os.getcwd(), dict(os.environ)
    try:
        yield
    finally:
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a folder that is gone"
