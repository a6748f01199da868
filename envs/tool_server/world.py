"""The world: questions as tasks, a server's tools as actions, and a session of its own for each episode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from envs.tool_server.episode import ANSWER, ToolEpisode
from envs.tool_server.questions import ToolQuestion, read_questions
from envs.tool_server.sessions import Address, Tool, ToolServerFault, select_tools, tools_of
from turnwise import seeding
from turnwise.world import Column, Limits, Reward, Split, Task, World, http_address, positive, whole_number


class ToolServer(World):
    """Questions to be answered with the tools of an MCP server.

    Parameters: `questions`, a file as `questions` describes it; `command`, the words of the command that starts the
    server, such as `[python, my_server.py]`, or `url`, the address of a running one, such as
    `http://127.0.0.1:8000/mcp`; `tools`, the names of the tools to offer, by default all; `turns`, the limit of an
    episode; `seconds`, the time limit of a call; `most_characters` of a reply that are shown.

    Each episode has a connection of its own, and with `command` a server of its own, so that no episode sees what
    another one did. What a running server keeps is its own affair. Whether an episode repeats depends on the tools:
    those that ask a clock or the network do not, and the host that plays an episode again compares the observations.
    """

    name: ClassVar[str] = "mcp"
    version: ClassVar[str] = "1"
    names_states = False
    rewards: ClassVar[Mapping[str, Reward]] = {"correct": Reward("1 for a right answer", "outcome", 1.0)}
    columns: ClassVar[tuple[Column, ...]] = (
        *World.columns,
        Column("calls", "calls", percent=False, better=None, description="calls of tools per episode"),
        Column("failed calls", "failed_calls", percent=False, better="lower", description="calls that a tool refused"),
    )
    grammar = (
        'TOOL[ARGUMENTS] calls a tool, with a JSON object such as {"a": 1} as its arguments, or with plain text '
        f"where it takes one text; {ANSWER}[TEXT] gives your answer and ends the episode."
    )

    def __init__(
        self,
        *,
        questions: str,
        command: Sequence[str] | None = None,
        url: str | None = None,
        tools: Sequence[str] | None = None,
        turns: int = 6,
        seconds: float = 20.0,
        most_characters: int = 2_000,
    ) -> None:
        self._address = _address(command, url)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self._seconds = positive("seconds", seconds)
        self._most_characters = whole_number("most_characters", most_characters, 1, 1_000_000)
        self._questions = read_questions(Path(questions))
        try:
            self._tools = select_tools(tools_of(self._address, self._seconds), tools)
        except ToolServerFault as error:
            raise ValueError(f"command or url must lead to an MCP server; {error}") from error
        if any(tool.name == ANSWER for tool in self._tools):
            raise ValueError(
                f"no tool may be called {ANSWER!r}, which is how an episode ends: choose others by `tools`"
            )
        self._by_name = {question.name: question for every in self._questions.values() for question in every}
        solved = all(question.solution is not None for question in self._by_name.values())
        self.baselines = ("oracle",) if solved else ()
        # The verbs are the server's, so they are set on the instance.
        self.verbs = frozenset({tool.name for tool in self._tools} | {ANSWER})  # type: ignore[misc]
        self.instruction = "Answer the question. You have these tools:\n" + "\n".join(map(_describe_tool, self._tools))

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` questions of a split, in the file's order."""
        questions = self._questions[split]
        if count > len(questions):
            raise ValueError(
                f"count must be at most {len(questions)}, the {split} questions of the file; found {count}"
            )
        return [self._task(question, split) for question in questions[:count]]

    def split_size(self, split: Split) -> int:
        """Number of questions of a split."""
        return len(self._questions[split])

    def make(self, task: Task, seed: int) -> ToolEpisode:
        """An episode on a question, whose session starts with its reset. `seed` is unused: tools take none."""
        question = self._by_name.get(task.id.removeprefix(f"{self.name}/{self.version}/"))
        if question is None:
            raise ValueError(f"a task must be one of the file's questions; found {task.id!r}")
        return ToolEpisode(question, self._address, self._tools, self._seconds, self._most_characters)

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        """The file of questions."""
        return {"questions": Path(str(parameters["questions"]))} if "questions" in parameters else {}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The protocol's library, and the one that holds arguments to a tool's schema."""
        return ("jsonschema", "mcp")

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """A digest of the tools that the server lists, and of the files that its command names."""
        world = cls(**parameters)
        digest = hashlib.sha256(json.dumps([vars(tool) for tool in world._tools], sort_keys=True).encode())
        for word in world._address.command[1:]:
            if Path(word).is_file():
                digest.update(Path(word).read_bytes())
        return {"tools": digest.hexdigest()[:16]}

    def _task(self, question: ToolQuestion, split: Split) -> Task:
        name = f"{self.name}/{self.version}/{question.name}"
        return Task(self.name, name, split, seeding.derive(0, name))


def _address(command: Sequence[str] | None, url: str | None) -> Address:
    if (command is None) == (url is None):
        raise ValueError(f"command or url must say where the server is, and not both; found {command!r} and {url!r}")
    if url is not None:
        return Address(url=http_address("url", url))
    if isinstance(command, str) or not command or not all(isinstance(word, str) for word in command):
        raise ValueError(f"command must be a list of words, such as [python, my_server.py]; found {command!r}")
    return Address(command=tuple(command))


def _describe_tool(tool: Tool) -> str:
    """One line on a tool: its name, its arguments with their types, and what it does."""
    properties: Mapping[str, Any] = tool.arguments.get("properties", {})
    arguments = ", ".join(
        f"{name} ({schema.get('type', 'any')}{'' if name in tool.arguments.get('required', ()) else ', optional'})"
        for name, schema in properties.items()
    )
    return f"{tool.name}: {arguments or 'no arguments'}. {tool.description}".rstrip()
