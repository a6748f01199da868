"""One question: calls of tools, and an answer at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator

from envs.tool_server.questions import ToolQuestion
from envs.tool_server.sessions import Address, Tool, ToolSession
from turnwise.world import Environment, Observation, Remaining, ScriptedAction, Step

ANSWER = "answer"


class ToolEpisode(Environment):
    """One episode, with a session of its own. `reset` and calls raise ToolServerFault where the server fails."""

    def __init__(
        self, question: ToolQuestion, address: Address, tools: Sequence[Tool], seconds: float, most_characters: int
    ) -> None:
        self._question, self._address, self._seconds = question, address, seconds
        self._tools = {tool.name: tool for tool in tools}
        self._most_characters = most_characters
        self._session: ToolSession | None = None
        self._calls = 0
        self._answered = self._correct = False

    def reset(self) -> Observation:
        """Connect, and ask the question."""
        self._session = ToolSession(self._address, self._seconds)
        return Observation(self._question.question)

    def step(self, action: str) -> Step:
        """Call a tool, or answer. What is no call of a tool is refused here, and the server does not see it."""
        verb, bracket, rest = action.strip().partition("[")
        if self._answered:
            return self._refuse("The episode is over.")
        if not bracket or not rest.endswith("]") or (verb != ANSWER and verb not in self._tools):
            names = ", ".join([*self._tools, ANSWER])
            return self._refuse(f"Not an action. Write one of {names} and its argument between square brackets.")
        if verb == ANSWER:
            return self._answer(rest[:-1])
        arguments = _arguments(rest[:-1], self._tools[verb])
        if isinstance(arguments, str):
            return self._refuse(arguments)
        assert self._session is not None, "the contract says that reset comes first"
        reply = self._session.call(verb, arguments)
        self._calls += 1
        return Step(
            Observation(reply.text[: self._most_characters] or "The tool says nothing."),
            valid=not reply.failed,
            effective=not reply.failed,
            metrics={"calls": 1.0, "failed_calls": float(reply.failed)},
        )

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """The next call of the question's solution, then its first answer. Raises ValueError without a solution."""
        if self._question.solution is None:
            raise ValueError("the oracle needs the question's `solution`; found none in the file")
        if self._calls < len(self._question.solution):
            return ScriptedAction("a tool says it", (self._question.solution[self._calls],))
        return ScriptedAction("this is the answer", (f"{ANSWER}[{self._question.answer[0]}]",))

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Raises NotImplementedError: arguments cannot be drawn from a schema in a way that means anything."""
        raise NotImplementedError("the tools' arguments cannot be drawn, so this world has no random baseline policy")

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()

    def _answer(self, text: str) -> Step:
        self._answered, self._correct = True, self._question.is_answered(text)
        return Step(
            Observation("Right." if self._correct else "Wrong."),
            {"correct": float(self._correct)},
            terminated=True,
            success=self._correct,
        )

    def _refuse(self, text: str) -> Step:
        return Step(Observation(text), terminated=self._answered, valid=False, effective=False, success=self._correct)


def _arguments(text: str, tool: Tool) -> dict[str, Any] | str:
    """The arguments of a call, or why they are none: a JSON object, or plain text for a tool that takes one text."""
    properties = tool.arguments.get("properties", {})
    texts = [name for name, schema in properties.items() if schema.get("type") == "string"]
    try:
        arguments = json.loads(text) if text.strip() else {}
        json.dumps(arguments, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON, but cannot be sent
    except (ValueError, RecursionError):
        arguments = text
    if not isinstance(arguments, dict) and len(properties) == 1 and texts:
        arguments = {texts[0]: text}
    if not isinstance(arguments, dict):
        return f"The arguments of {tool.name} must be a JSON object with {', '.join(properties) or 'nothing in it'}."
    mistakes = sorted(Draft202012Validator(tool.arguments).iter_errors(arguments), key=lambda each: str(each.json_path))
    return f"{tool.name} does not take these arguments: {mistakes[0].message}." if mistakes else arguments
