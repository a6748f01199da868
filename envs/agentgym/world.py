"""The world: a server's items as tasks, one remote environment per episode, and the baseline policies where possible.

Differs from AgentGym's own clients: an error raises ServerFault instead of a KeyError or becoming a reward; the
environment is closed; connections are pooled and many episodes run at once; quirks of single servers are corrected
(see `servers`).

The servers reveal no solution, so there is no oracle; there is a random policy only where the server lists the possible
actions. `baselines` names those that exist. The servers take no seed, so whether an episode repeats depends on the
server; the host that plays an episode again compares the observations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from envs.agentgym.client import AgentGymClient, ServerFault, flag, handle, number, text, texts
from envs.agentgym.servers import SERVERS, Server, adapted
from turnwise import seeding
from turnwise.world import (
    SPLITS,
    Column,
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    http_address,
    one_of,
    positive,
    whole_number,
)

LISTED = "Available actions: "
"""Text before the list of actions in BabyAI's observations."""


class AgentGym(World):
    """Play an environment server of AgentGym.

    Parameters: `server`, a name in `servers.SERVERS`; `address`, such as `http://127.0.0.1:36001`; `train`,
    `validation` and `test`, the item numbers of each split, such as `0-373, 400`; `turns`, the turn limit of an
    episode, by default AgentGym-RL's; `seconds`, the timeout of a request; `fields`, values that replace those of the
    server's row, for a server of one's own; `server_version`, a label of your choice for the server's code and data.
    The servers report no version: change `server_version` when code or data change, or cached episodes of the old
    version are reused.

    The server receives no request before an episode begins. A task's id holds the server's name and the item's number,
    so it identifies a task only if the server keeps its numbering; TextCraft's does not.
    """

    name: ClassVar[str] = "agentgym"
    version: ClassVar[str] = "1"
    baselines: tuple[str, ...] = ()
    names_states = False
    rewards: ClassVar[Mapping[str, Reward]] = {
        "score": Reward("the change of the server's score, whose sum is the score at the end", "outcome", 1.0)
    }
    columns: ClassVar[tuple[Column, ...]] = (
        Column("success", "success", description="episodes that reach the score of a solved task"),
        Column("score", "score", description="the server's score at the end"),
        Column("format", "format", description="replies that could be read"),
        Column("turns", "turns", percent=False, better=None, description="replies per episode"),
    )

    def __init__(
        self,
        *,
        server: str,
        address: str,
        train: str,
        validation: str,
        test: str,
        turns: int | None = None,
        seconds: float = 25.0,
        fields: Mapping[str, Any] | None = None,
        server_version: str = "",
    ) -> None:
        if not isinstance(server_version, str):
            raise ValueError(f"server_version must be a text; found {server_version!r}")
        self.server = one_of("server", server, sorted(SERVERS))
        self.row = adapted(SERVERS[server], fields or {})
        self.address = http_address("address", address)
        self.items = _disjoint({"train": train, "validation": validation, "test": test})
        self.limits = Limits(turns=whole_number("turns", self.row.turns if turns is None else turns, 1, 1000))
        self.seconds = positive("seconds", seconds)
        self.baselines = ("random",) if self.row.offers else ()
        # One class serves all servers, so `verbs`, too, is set on the instance.
        self.verbs = frozenset(self.row.verbs) or None  # type: ignore[misc]
        self._family = f"{self.name}/{self.version}/{self.server}/"
        self.instruction, self.grammar = self.row.instruction, self.row.grammar

    @cached_property
    def client(self) -> AgentGymClient:
        """HTTP client whose connections all episodes share."""
        return AgentGymClient(self.address, self.seconds)

    def tasks(self, split: Split, count: int) -> list[Task]:
        """The first `count` items of a split, in the order in which the parameters name them."""
        if count > len(self.items[split]):
            raise ValueError(
                f"count must be at most {len(self.items[split])}, the items that the parameter {split} names; "
                f"found {count}"
            )
        return [self._task(item, split) for item in self.items[split][:count]]

    def split_size(self, split: Split) -> int:
        """Number of items that the parameter of this split names."""
        return len(self.items[split])

    def make(self, task: Task, seed: int) -> AgentGymEnvironment:
        """Environment for a task.

        `seed` is unused: the servers take none. Raises ValueError for a task of another world.
        """
        family, _, item = task.id.rpartition("/")
        if f"{family}/" != self._family or not item.isdigit():
            raise ValueError(f"a task of {self._family!r} must have an id that begins so; found {task.id!r}")
        return AgentGymEnvironment(self.client, self.row, int(item))

    def _task(self, item: int, split: Split) -> Task:
        name = f"{self._family}{item}"
        return Task(self.name, name, split, seeding.derive(0, name), {"server": self.server})


class AgentGymEnvironment(Environment):
    """One episode on a server: `reset` creates the remote environment, `close` frees it."""

    def __init__(self, client: AgentGymClient, row: Server, item: int) -> None:
        self._client = client
        self._row = row
        self._item = item
        self._handle: int | None = None
        self._score = 0.0
        self._ended = False
        self._observation = ""
        self._offers: tuple[str, ...] = ()

    def reset(self) -> Observation:
        """Create the remote environment and start its task.

        Raises ServerFault, as does every method that asks the server.
        """
        row = self._row
        self._handle = handle(self._client.post("create", dict(row.create_body)), row.created)
        reply = self._client.post("reset", {row.handle: self._handle, row.item: self._item, **row.reset_body})
        if row.first:
            observation = "\n".join(text(reply, name) for name in row.first)
        else:
            self._require_no_fault(reply.get(row.observation) if isinstance(reply, dict) else reply)
            answer = self._client.get("observation", {row.handle: self._handle})
            observation = answer if isinstance(answer, str) else text(answer, row.observation)
        self._take_in(observation, reply)
        return Observation(observation)

    def step(self, action: str) -> Step:
        """Send one action.

        Text that cannot be an action, and any after the end, is refused here without asking the server.
        """
        action_text = action.strip()
        verb, bracket, rest = action_text.partition("[")
        has_verb = bracket == "[" and rest.endswith("]") and verb in self._row.verbs
        if self._ended:
            return self._refuse("The episode is over.")
        if not action_text or (self._row.verbs and not has_verb):
            return self._refuse(f"Not an action. {self._row.grammar}")
        command = (
            f"<{verb}>{rest[:-1]}</{verb}>" if self._row.tagged else self._row.action.replace("{action}", action_text)
        )
        reply = self._client.post("step", {self._row.handle: self._handle, "action": command})
        return self._read(reply, final=has_verb and verb == self._row.final_action)

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        """Raises NotImplementedError: the servers reveal no solution, and `baselines` does not name an oracle."""
        raise NotImplementedError("AgentGym's servers tell no solution, so this world has no oracle")

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        """Uniform over the actions that the server says are possible now.

        In WebShop these are the things to click and, on a page with a search bar, one search for two words drawn from
        the page. Servers that tell no actions have no random baseline policy.
        """
        if self._row.offers == "webshop":
            actions = self._on_the_page(generator)
        elif self._row.offers:
            actions = self._offers
        else:
            raise NotImplementedError("this server does not tell the possible actions, so there is no random baseline")
        if not actions:
            raise ServerFault(f"the server must offer actions; found none in {self._observation[-200:]!r}")
        return ScriptedAction("a random action", (actions[int(generator.integers(len(actions)))],))

    def close(self) -> None:
        """Free the remote environment if one was created and the server has the route."""
        if self._handle is not None:
            self._client.close({self._row.handle: self._handle})

    def _read(self, reply: Any, *, final: bool) -> Step:
        row = self._row
        observation = text(reply, row.observation)
        self._require_no_fault(observation)
        if observation.startswith(row.refusals):
            return self._refuse(observation)
        ended = flag(reply, row.ended) or final
        cut_off = bool(row.truncated) and flag(reply, row.truncated)
        before = self._score
        self._score = self._new_score(number(reply, row.reward) * row.scale, ended)
        self._ended = ended or self._solved
        self._take_in(observation, reply)
        return Step(
            Observation(observation),
            {"score": self._score - before},
            terminated=self._ended,
            truncated=cut_off and not self._ended,
            success=self._solved,
        )

    def _new_score(self, score: float, ended: bool) -> float:
        if self._row.value == "total":
            return score
        if self._row.value == "final":
            return score if ended else 0.0
        return max(self._score, score)

    @property
    def _solved(self) -> bool:
        return self._score >= self._row.solved

    def _refuse(self, message: str) -> Step:
        return Step(Observation(message), terminated=self._ended, valid=False, effective=False, success=self._solved)

    def _require_no_fault(self, observation: Any) -> None:
        if isinstance(observation, str) and self._row.faults and observation.startswith(self._row.faults):
            raise ServerFault(f"the server failed and says so in its observation: {observation[:200]}")

    def _take_in(self, observation: str, reply: Any) -> None:
        """Store the observation and the actions that the server lists as possible next."""
        self._observation = observation
        if self._row.offers == "reply":
            self._offers = texts(reply, "available_actions")
        elif self._row.offers == "observation":
            _, separator, actions_json = observation.rpartition(LISTED)
            try:
                self._offers = tuple(json.loads(actions_json)) if separator else ()
            except ValueError as error:
                raise ServerFault(f"the available actions must be a list; found {actions_json[:200]!r}") from error

    def _on_the_page(self, generator: np.random.Generator) -> tuple[str, ...]:
        page = self._client.get("available_actions", {self._row.handle: self._handle})
        clicks = tuple(f"click[{name}]" for name in texts(page, "clickables") if name != "search")
        if not flag(page, "has_search_bar"):
            return clicks
        words = re.findall(r"[a-z]+", self._observation.lower())
        return (*clicks, f"search[{' '.join(generator.choice(words, size=2))}]")


def _disjoint(item_texts: Mapping[Split, str]) -> dict[Split, tuple[int, ...]]:
    """Item numbers of each split. Raises ValueError if two splits share an item."""
    items: dict[Split, tuple[int, ...]] = {split: _numbers(split, item_texts[split]) for split in SPLITS}
    for first, second in combinations(SPLITS, 2):
        if shared := sorted(set(items[first]) & set(items[second])):
            raise ValueError(f"{first} and {second} must share no item; both name {shared[0]}")
    return items


def _numbers(split: Split, value: str) -> tuple[int, ...]:
    """Whole numbers that a text such as `0-373, 400` names, in its order."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    matches = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part) for part in parts]
    numbers: list[int] = []
    for match in matches:
        if match is not None:
            numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    if not numbers or None in matches or len(set(numbers)) != len(numbers):
        raise ValueError(f"{split} must name items once each, such as '0-373, 400'; found {value!r}")
    return tuple(numbers)
