"""What AgentGym's servers call their fields: one row for each, from their sources as of 2025.

All have the routes `create`, `reset`, `step` and `observation`, and most have `close`; no two agree on the names. What
is wrong in their answers is put right by the row, and nowhere else:

* BabyAI's reward is that of the last action that was carried out, told again after every one that was not, and a
  success in the second half of the time does not end the episode: `value="best"` counts it once, `solved` ends it.
* WebArena's reward before the end says whether the browser did as told: `value="final"`.
* The search server lets a wrong answer be followed by another, so that its score is success within k tries:
  `final_action` ends the episode with the first.
* ScienceWorld counts any score above zero as passed: `solved` is the full score.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Offer = Literal["", "observation", "reply", "webshop"]
"""Where the actions that are possible now are told: nowhere; in the observation; in the replies; at a route."""


@dataclass(frozen=True)
class Server:
    """How one server is talked to. The defaults are what most do."""

    instruction: str
    """The aim, for a newcomer."""
    grammar: str
    """The actions."""
    turns: int = 20
    """The limit that AgentGym-RL plays it under."""

    created: str = "id"
    """The field of `create`'s reply that holds the environment's number; nothing where the reply is the number."""
    create_body: Mapping[str, Any] = field(default_factory=dict)
    handle: str = "id"
    """What requests call the environment's number."""
    item: str = "data_idx"
    """What `reset` calls the number of the task."""
    reset_body: Mapping[str, Any] = field(default_factory=dict)
    first: tuple[str, ...] = ("observation",)
    """The fields of `reset`'s reply that make the first observation; nothing where the route `observation` tells it."""

    action: str = "{action}"
    """How an action is sent."""
    observation: str = "observation"
    ended: str = "done"
    truncated: str = ""
    reward: str = "reward"
    scale: float = 1.0
    value: Literal["best", "total", "final"] = "best"
    """How the score follows from the rewards: the best so far; the last, which may fall; the one at the end."""
    solved: float = 1.0
    """The score from which a task is solved."""

    verbs: tuple[str, ...] = ()
    """Where actions have the form `verb[argument]`."""
    tagged: bool = False
    """Whether `verb[argument]` is sent as `<verb>argument</verb>`."""
    final_action: str = ""
    """The verb that ends the episode, whatever the server says."""
    refusals: tuple[str, ...] = ()
    """How the observation begins after what is no action."""
    faults: tuple[str, ...] = ()
    """How an observation begins that is an error of the server's."""
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
"""By the name that the parameter `server` takes."""


def adapted(server: Server, fields: Mapping[str, Any]) -> Server:
    """A row with other values, for a server of one's own. Raises ValueError for an unknown field or a wrong kind."""
    known = {entry.name: getattr(server, entry.name) for entry in dataclasses.fields(server)}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"fields must be of {', '.join(known)}; found {name!r}")
        plain = tuple(value) if isinstance(value, list) else value
        wanted = (int, float) if isinstance(known[name], float) else type(known[name])
        if not isinstance(plain, wanted) or isinstance(plain, bool) != isinstance(known[name], bool):
            raise ValueError(f"fields.{name} must be a value such as {known[name]!r}; found {value!r}")
        values[name] = plain
    found = dataclasses.replace(server, **values)
    for name, allowed in (("value", ("best", "total", "final")), ("offers", ("", "observation", "reply", "webshop"))):
        if getattr(found, name) not in allowed:
            raise ValueError(f"fields.{name} must be one of {allowed}; found {getattr(found, name)!r}")
    return found
