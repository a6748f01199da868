"""One episode: pages shown as text, WebArena's actions played on them, and the random policy."""

from __future__ import annotations

import asyncio
import hashlib
import re

import numpy as np

from envs.browser.actions import Action, Refused, read_action
from envs.browser.chromium import Chromium, running
from envs.browser.problem import PageProblem, PageVerdict
from envs.browser.reading import Element, PageReading, View
from envs.browser.tabs import Tabs
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step


class BrowserEnvironment(Environment):
    """One problem in one browser context. Nothing is opened before `reset`.

    `hosts` maps host names to ports of the loopback address; `most_lines` is the maximum number of lines of a page in
    an observation.
    """

    def __init__(
        self, problem: PageProblem, executable: str, hosts: dict[str, int], view: View, most_lines: int
    ) -> None:
        self._problem = problem
        self._executable = executable
        self._hosts = hosts
        self._view = view
        self._most_lines = most_lines
        self._chromium: Chromium | None = None
        self._tabs: Tabs | None = None
        self._reading = PageReading((), (), "")
        self._address = ""
        self._text = ""
        self._state: str | None = None
        self._verdict: PageVerdict | None = None
        self._crashed = asyncio.Event()

    def reset(self) -> Observation:
        """The goal and the first page. Raises BrowserLost."""
        self._chromium = running(self._executable, self._hosts)
        self._chromium.run(self._open(), self._crashed)
        return self._observe(f"Goal: {self._problem.goal}")

    def step(self, action: str) -> Step:
        """Play one of WebArena's actions; other text is answered with the legal actions. Raises BrowserLost."""
        if self._verdict is not None:
            return self._refuse("The episode is over.")
        try:
            parsed_action = read_action(action)
            element = self._find(parsed_action)
            before = self._state
            message = self._run(parsed_action, element)
        except Refused as refused:
            return self._refuse(str(refused))
        if self._verdict is not None:
            return self._end(self._verdict)
        effective = before is None or self._state != before
        return Step(self._observe(message or ""), effective=effective)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Action of the problem's own oracle, which sees the page as the policy sees it."""
        return self._problem.oracle(self._reading, self._address)

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the elements shown, and `stop` besides where that can solve the problem.

        A field is clicked or typed into with equal probability: a uniformly random word of the goal, with or without
        Enter. The answer of a `stop` is a uniformly random word of the goal and of what is shown. Without elements it
        goes back to where the episode began.
        """
        choices: list[Element | None] = list(self._reading.elements)
        if self._problem.ends_with_stop:
            choices.append(None)
        if not choices:
            return ScriptedAction("nothing to click here", (f"goto [{self._problem.starts[0]}]",))
        element = choices[int(generator.integers(len(choices)))]
        if element is None:
            words = _words("\n".join([self._problem.goal, *self._reading.lines]))
            return ScriptedAction("a random answer", (f"stop [{words[int(generator.integers(len(words)))]}]",))
        if element.is_field and generator.integers(2):
            words = _words(self._problem.goal)
            word, enter = words[int(generator.integers(len(words)))], int(generator.integers(2))
            return ScriptedAction("a random word", (f"type [{element.number}] [{word}] [{enter}]",))
        return ScriptedAction("a random element", (f"click [{element.number}]",))

    def close(self) -> None:
        """Close the episode's browser context, unless the browser died, and release what the problem holds."""
        try:
            if self._chromium is not None and self._tabs is not None and self._chromium.alive:
                self._chromium.run(self._tabs.close())
        finally:
            self._problem.close()

    def _find(self, action: Action) -> Element | None:
        """The target element of an action. Raises Refused if there is none, or if the action does not fit it."""
        if action.verb not in ("click", "hover", "type"):
            return None
        element = self._reading.element(action.number)
        if element is None:
            raise Refused(f"There is no element {action.number}; the page shows {len(self._reading.elements)}.")
        if action.verb == "type" and not element.is_field:
            raise Refused(f"Element {action.number} is a {element.role}; type needs a text field.")
        return element

    def _run(self, action: Action, element: Element | None) -> str | None:
        assert self._chromium is not None, "reset must be called first"
        if action.verb == "stop":
            self._chromium.run(self._stop(action.text), self._crashed)
            return None
        return self._chromium.run(self._play(action, element), self._crashed)

    async def _open(self) -> None:
        assert self._chromium is not None, "the browser must be running"
        problem, browser = self._problem, self._chromium.browser
        # Stored before anything can fail, so that `close` finds it.
        self._tabs = await Tabs.open(browser, problem.sites, problem.context, problem.load_seconds, self._crashed)
        await self._tabs.begin()
        await self._problem.prepare(self._tabs.context)
        first, *others = self._problem.starts
        failures = [await self._tabs.goto(first)]
        for address in others:
            await self._tabs.play(Action("new_tab"), None)
            failures.append(await self._tabs.goto(address))
        if others:
            await self._tabs.play(Action("tab_focus", 0), None)
        if failed := [failure for failure in failures if failure is not None]:
            raise RuntimeError(f"the pages {', '.join(self._problem.starts)} must open; found: {', '.join(failed)}")
        await self._look()

    async def _play(self, action: Action, element: Element | None) -> str | None:
        assert self._tabs is not None, "reset must be called first"
        message = await self._tabs.play(action, element)
        await self._look()
        return message

    async def _look(self) -> None:
        """Update the verdict (has the page ended the episode?), the text of the page, and the state."""
        assert self._tabs is not None, "reset must be called first"
        self._address = self._tabs.front.page.url
        self._verdict = await self._problem.look(self._tabs.front.page)
        self._reading = await self._tabs.read(self._view, self._most_lines)
        self._text = "\n".join([self._tabs.header(), *self._reading.lines])
        if self._problem.repeatable:
            content = "\x1f".join([self._text, self._reading.fingerprint, self._problem.hidden()])
            self._state = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    async def _stop(self, answer: str) -> None:
        assert self._tabs is not None, "reset must be called first"
        self._verdict = await self._problem.judge(self._tabs.front.page, answer)

    def _end(self, verdict: PageVerdict) -> Step:
        text = f"The episode is over: the task is {'' if verdict.solved else 'not '}solved."
        rewards = {"solved": float(verdict.solved)}
        return Step(self._last(text), rewards, terminated=True, success=verdict.solved, metrics=verdict.metrics)

    def _refuse(self, reason: str) -> Step:
        if self._verdict is None:
            return Step(self._observe(reason), valid=False, effective=False)
        solved = self._verdict.solved
        return Step(self._last(reason), terminated=True, valid=False, effective=False, success=solved)

    def _last(self, text: str) -> Observation:
        return Observation(text, state=self._state and f"{self._state} over")

    def _observe(self, preface: str) -> Observation:
        return Observation(f"{preface}\n{self._text}" if preface else self._text, state=self._state)


def _words(text: str) -> list[str]:
    """Words of a text without the surrounding quotes, brackets and punctuation."""
    words = [word.strip("\"'.,;:?!()[]") for word in re.split(r"\s+", text)]
    return [word for word in words if word]
