"""The world: an OpenEnv server by its address, with seeds as tasks and a session for each episode."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from envs.openenv.actions import action_form
from envs.openenv.episode import OpenEnvEpisode, Reading
from envs.openenv.sessions import OpenEnvFault, OpenEnvSession, description, tools
from turnwise import seeding
from turnwise.world import (
    Column,
    Limits,
    Reward,
    Split,
    Task,
    World,
    http_address,
    positive,
    require_family,
    whole_number,
)


class OpenEnv(World):
    """Any environment that a server of OpenEnv plays, in text.

    Parameters: `url`, the server's address, such as `http://127.0.0.1:8000`; `action`, what a text is: the name of the
    action's field that it is the value of, `json` for a whole action, or `tools` for `TOOL[ARGUMENTS]`, by default as
    the server's schema of actions suggests; `observation`, the fields of an observation that are shown, by default all;
    `success_reward`: an episode succeeds if it ends with at least this reward in its last step, or `success_field`: if
    it ends with a true value in this field of the observation; `instruction` and `grammar`, by default what the server
    says of itself; `reset`, what its `reset` is given besides the seed; where an observation has them, the fields
    `offers`, the list of possible actions, of which the random baseline policy draws, and `solution`, the list of
    actions that solve the task from here, which the oracle plays; `turns`, the limit of an episode; `seconds`, the time
    limit of a request; `token_variable`, the environment variable that holds a token, if the server wants one.

    A task is a seed, which goes to the server with `reset`. An environment that takes none there plays what it likes:
    then an episode does not repeat. OpenEnv says only that an episode is done, so one that a limit of the server cut
    off counts as ended.
    """

    name: ClassVar[str] = "openenv"
    version: ClassVar[str] = "1"
    names_states = False
    rewards: ClassVar[Mapping[str, Reward]] = {"reward": Reward("what the environment pays for a step", "outcome", 1.0)}
    columns: ClassVar[tuple[Column, ...]] = (*World.columns, Column("return", "reward", percent=False))

    def __init__(
        self,
        *,
        url: str,
        action: str | None = None,
        observation: Sequence[str] | None = None,
        success_reward: float | None = None,
        success_field: str | None = None,
        instruction: str | None = None,
        grammar: str | None = None,
        reset: Mapping[str, Any] | None = None,
        offers: str | None = None,
        solution: str | None = None,
        turns: int = 20,
        seconds: float = 20.0,
        token_variable: str = "OPENENV_TOKEN",
    ) -> None:
        if (success_reward is None) == (success_field is None):
            raise ValueError(
                f"success_reward or success_field must say when a task is solved, and not both; found "
                f"{success_reward!r} and {success_field!r}"
            )
        if isinstance(observation, str) or observation == []:
            raise ValueError(f"observation must be a list of fields, such as [message]; found {observation!r}")
        self._url = http_address("url", url)
        self.limits = Limits(turns=whole_number("turns", turns, 1, 1000))
        self._seconds, self._token_variable = positive("seconds", seconds), token_variable
        try:
            self._description = description(self._url, self._seconds, token_variable)
            self._form = action_form(self._description.action, action)
            self._tools = tools(self._url, self._seconds, token_variable) if self._form.form == "tools" else ()
        except OpenEnvFault as error:
            raise ValueError(f"url must be the address of a running OpenEnv server; {error}") from error
        if self._tools:  # the verbs are the server's, so they are set on the instance
            self.verbs = frozenset(str(tool["name"]) for tool in self._tools)  # type: ignore[misc]
        _require_fields(self._description.observation, observation or (), success_field, offers, solution)
        self._reading = Reading(observation, success_reward, success_field, offers, solution)
        tool_list = "\nYou have these tools:\n" + "\n".join(map(_describe_tool, self._tools)) if self._tools else ""
        self.instruction = f"{self._description.text if instruction is None else instruction}{tool_list}"
        self.grammar = self._form.grammar if grammar is None else grammar
        self._reset_arguments = dict(reset or {})
        available = {"random": bool(offers or self._form.choices), "oracle": solution is not None}
        self.baselines = tuple(name for name, there in available.items() if there)
        text = json.dumps(self._reset_arguments, sort_keys=True)
        variant = f"-{seeding.derive(0, 'openenv reset', text):x}" if self._reset_arguments else ""
        self._family = f"{self.name}/{self.version}/{self._description.name}{variant}/"

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` seeds of a split, which has no end."""
        return [self._task(split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> OpenEnvEpisode:
        """An episode on a seed, whose session starts with its reset. `seed` is unused: OpenEnv knows one seed only."""
        require_family(task, self._family)
        session = partial(OpenEnvSession, self._url, self._seconds, self._token_variable)
        return OpenEnvEpisode(
            session, {**self._reset_arguments, "seed": task.seed}, self._form, self.grammar, self._reading
        )

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        """The client of WebSockets."""
        return ("websockets",)

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """A digest of what the server says of itself."""
        world = cls(**parameters)
        text = json.dumps([vars(world._description), world._tools], sort_keys=True)
        return {"server": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def _task(self, split: Split, number: int) -> Task:
        name = f"{self._family}{split}/{number}"
        # Most environments give the seed to a generator that takes 32 bits.
        return Task(self.name, name, split, seeding.derive(0, name) % 2**31)


def _require_fields(schema: Mapping[str, Any], observation: Sequence[str], *others: str | None) -> None:
    """Raise ValueError for a field that observations do not have. The schema of tool calls leaves them open."""
    known = [name for name in schema.get("properties", {}) if name not in ("done", "reward", "metadata")]
    for name in (*observation, *filter(None, others)):
        if known and name not in known:
            raise ValueError(f"fields must be of the server's observations, {', '.join(known)}; found {name!r}")


def _describe_tool(tool: Mapping[str, Any]) -> str:
    """One line on a tool: its name, its arguments with their types, and what it does."""
    properties: Mapping[str, Any] = (tool.get("input_schema") or {}).get("properties", {})
    arguments = ", ".join(f"{name} ({schema.get('type', 'any')})" for name, schema in properties.items())
    description = " ".join(str(tool.get("description") or "").split())
    return f"{tool['name']}: {arguments or 'no arguments'}. {description}".rstrip()
