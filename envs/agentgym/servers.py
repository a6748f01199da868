"""Table of AgentGym's servers: the field names and quirks of each, from their sources as of 2025.

All servers have the routes `create`, `reset`, `step` and `observation`, and most have `close`; no two agree on the
field names. Errors in a server's answers are corrected by its row here, and nowhere else:

* BabyAI repeats the reward of the last valid action after every invalid one, and a success in the second half of the
  time does not end the episode: `value="best"` counts the reward once, and `solved` ends the episode.
* WebArena's reward before the end says whether the browser carried out the action: `value="final"` ignores it.
* The search server allows another answer after a wrong one, so its score is success within k tries: `final_action`
  ends the episode at the first answer.
* ScienceWorld counts any score above zero as passed: `solved` requires the full score.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Offer = Literal["", "observation", "reply", "webshop"]
"""Where a server lists the currently possible actions: nowhere, in the observation, in replies, at a route."""


@dataclass(frozen=True)
class Server:
    """Protocol of one server: its field names and how its rewards become a score. The defaults fit most servers."""

    instruction: str
    """The aim of the task, for a policy that has never seen the world."""
    grammar: str
    """The actions, in words."""
    turns: int = 20
    """Turn limit of an episode in AgentGym-RL."""

    created: str = "id"
    """Field of `create`'s reply that holds the environment's number; empty where the reply is the number itself."""
    create_body: Mapping[str, Any] = field(default_factory=dict)
    handle: str = "id"
    """Name of the environment's number in requests."""
    item: str = "data_idx"
    """Name of the task number in `reset` requests."""
    reset_body: Mapping[str, Any] = field(default_factory=dict)
    first: tuple[str, ...] = ("observation",)
    """Fields of `reset`'s reply that form the first observation; empty where the route `observation` gives it."""

    action: str = "{action}"
    """Format in which an action is sent."""
    observation: str = "observation"
    ended: str = "done"
    truncated: str = ""
    reward: str = "reward"
    scale: float = 1.0
    value: Literal["best", "total", "final"] = "best"
    """How rewards become a score: the highest so far; the latest, which may fall; the one at the end."""
    solved: float = 1.0
    """The score from which a task counts as solved."""

    verbs: tuple[str, ...] = ()
    """Verbs of a server whose actions have the form `verb[argument]`."""
    tagged: bool = False
    """Whether `verb[argument]` is sent as `<verb>argument</verb>`."""
    final_action: str = ""
    """Verb that ends the episode whatever the server replies."""
    refusals: tuple[str, ...] = ()
    """Beginnings of the observation that follows an invalid action."""
    faults: tuple[str, ...] = ()
    """Beginnings of an observation that reports an error of the server."""
    offers: Offer = ""


SERVERS: dict[str, Server] = {
    "textcraft": Server(
        instruction="Make the goal item in Minecraft from the crafting commands that are listed.",
        grammar=(
            "get N ITEM takes what cannot be crafted; craft N ITEM using N ITEM, N ITEM crafts by one of the commands; "
            "inventory lists what you have."
        ),
        refusals=("Could not ", "Wrong item format"),
    ),
    "babyai": Server(
        instruction="Reach the goal that is given by walking through rooms and handling what is in them.",
        grammar="One of the available actions that every observation lists.",
        solved=0.05,  # the reward at the goal is 1 - 0.9 x steps / limit
        refusals=("The action is not recognized",),
        offers="observation",
    ),
    "sciworld": Server(
        instruction="Do the science task that is given, in a house with rooms, things, plants and animals.",
        grammar=(
            "look around, inventory, task, open OBJ, close OBJ, activate OBJ, deactivate OBJ, connect OBJ to OBJ, "
            "disconnect OBJ, use OBJ on OBJ, look at OBJ, look in OBJ, read OBJ, move OBJ to OBJ, pick up OBJ, "
            "put down OBJ, pour OBJ into OBJ, dunk OBJ into OBJ, mix OBJ, go to LOC, eat OBJ, flush OBJ, "
            "focus on OBJ, wait, wait1."
        ),
        first=("task_description", "observation"),
        reward="score",
        scale=0.01,
        value="total",
        refusals=("No known action matches",),
    ),
    "webshop": Server(
        instruction="Buy the product that the instruction asks for, with the right options and below the price.",
        grammar="search[WORDS] where the page has a search bar; click[TEXT] on a button, a product or an option.",
        turns=10,
        created="",
        handle="env_idx",
        item="session_id",
        first=(),
        observation="state",
        value="final",
        verbs=("search", "click"),
        offers="webshop",
    ),
    "search": Server(
        instruction="Answer the question. You can search Wikipedia.",
        grammar="search[QUERY] shows passages; answer[TEXT] gives your answer and ends the episode.",
        turns=4,
        created="",
        create_body={"id": 0},
        handle="env_idx",
        item="id",
        first=(),
        value="final",
        verbs=("search", "answer"),
        tagged=True,
        final_action="answer",
        refusals=("Your previous action is invalid",),
    ),
    "webarena": Server(
        instruction="Do what the objective asks for on a website that is shown as an accessibility tree.",
        grammar=(
            "click [id]; type [id] [text] [1 or 0: press enter]; hover [id]; press [keys]; scroll [down or up]; "
            "new_tab; tab_focus [index]; close_tab; goto [url]; go_back; go_forward; stop [answer] ends the episode."
        ),
        turns=15,
        created="env_idx",
        handle="env_idx",
        item="idx",
        reset_body={"seed": 0},
        first=(),
        action="```{action}```",
        ended="terminated",
        truncated="truncated",
        value="final",
        refusals=("Cannot parse action", "Invalid action"),
        faults=("TimeoutError", "Error: Env"),
    ),
    "alfworld": Server(
        instruction="Do the household task that is given.",
        grammar="Actions such as go to desk 1, open drawer 1, take mug 1 from desk 1, use lamp 1, look, inventory.",
        turns=30,
        item="game",
        reset_body={"world_type": "Text"},
        refusals=("Nothing happens",),
        offers="reply",
    ),
}
"""The servers by name, as the parameter `server` selects them."""


def adapted(server: Server, fields: Mapping[str, Any]) -> Server:
    """Copy of a row with some fields replaced, for a user's own server.

    Raises ValueError for an unknown field or a value of the wrong type.
    """
    known = {entry.name: getattr(server, entry.name) for entry in dataclasses.fields(server)}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"fields must be of {', '.join(known)}; found {name!r}")
        plain = tuple(value) if isinstance(value, list) else value
        expected_type = (int, float) if isinstance(known[name], float) else type(known[name])
        if not isinstance(plain, expected_type) or isinstance(plain, bool) != isinstance(known[name], bool):
            raise ValueError(f"fields.{name} must be a value such as {known[name]!r}; found {value!r}")
        values[name] = plain
    adapted_server = dataclasses.replace(server, **values)
    for name, allowed in (("value", ("best", "total", "final")), ("offers", ("", "observation", "reply", "webshop"))):
        if getattr(adapted_server, name) not in allowed:
            raise ValueError(f"fields.{name} must be one of {allowed}; found {getattr(adapted_server, name)!r}")
    return adapted_server
