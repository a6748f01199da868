"""Small servers with the routes, fields and failures of AgentGym's own, on the loopback address.

Each plays a corridor of its own kind in two or three actions; what counts is the form of the replies, taken from
AgentGym's sources: `TextCraft_Wrapper`, `BabyAIEnv`, `SciWorldEnv`, `ALFWorld_Wrapper` (an error is HTTP 200 with
`{"error": ...}`, a finished episode is an error), `WebshopEnvServer`, `SearchQAEnvServer` (an error is HTTP 500) and
`WebarenaEnvServer` (an error is an observation). Item 500 is always one that the server fails on.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import Body, FastAPI

BROKEN_ITEM = 500


@dataclass
class Standin:
    """A server's application, and what it has heard."""

    app: FastAPI = field(default_factory=FastAPI)
    open: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The remote environments that live, by their number."""
    heard: list[tuple[str, Any]] = field(default_factory=list)
    """Routes and bodies, in order."""
    created: int = 0

    def new(self) -> int:
        """A remote environment."""
        self.created += 1
        self.open[self.created] = {"item": 0, "place": 0, "done": False, "score": 0.0}
        return self.created

    def hear(self, route: str, body: Any) -> None:
        """Write a request down."""
        self.heard.append((route, body))


def told(answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer, or AgentGym's way of saying that there is none."""
    try:
        return answer()
    except Exception as error:
        return {"error": str(error)}


def checked(standin: Standin, number: int, *, reset: bool = False) -> dict[str, Any]:
    """The environment of this number, as `_check_id` does."""
    if number not in standin.open:
        raise ValueError(f"The id {number} is not valid.")
    if standin.open[number]["done"] and not reset:
        raise ValueError(f"The task with environment {number} has finished.")
    return standin.open[number]


def started(standin: Standin, number: int, item: int) -> dict[str, Any]:
    """The environment at the start of an item."""
    found = checked(standin, number, reset=True)
    if item >= BROKEN_ITEM:
        raise IndexError("list index out of range")
    found.update(item=item, place=0, done=False, score=0.0)
    return found


def add_close(standin: Standin, handle: str) -> None:
    @standin.app.post("/close")
    def close(number: int = Body(alias=handle, embed=True)) -> bool:
        standin.hear("close", number)
        return standin.open.pop(number, None) is not None


def textcraft() -> Standin:
    """Get a log, then craft planks."""
    standin = Standin()

    @standin.app.post("/create")
    def create(commands: str | None = Body(None), goal: str | None = Body(None)) -> dict[str, Any]:
        return {"id": standin.new(), "observation": "Crafting commands:", "done": False, "reward": 0}

    @standin.app.post("/reset")
    def reset(id: int = Body(), data_idx: int = Body(0)) -> dict[str, Any]:
        standin.hear("reset", data_idx)

        def answer() -> dict[str, Any]:
            started(standin, id, data_idx)
            seen = f"Crafting commands:\ncraft 4 planks using 1 log\n\nGoal: craft planks {data_idx}."
            return {"id": id, "observation": seen, "done": False, "reward": 0}

        return told(answer)

    @standin.app.post("/step")
    def step(id: int = Body(), action: str = Body()) -> dict[str, Any]:
        standin.hear("step", action)

        def answer() -> dict[str, Any]:
            found = checked(standin, id)
            if action == "get 1 log":
                found["place"] = 1
                return {"observation": "Got 1 log", "reward": 0, "done": False}
            if action == "craft 4 planks using 1 log" and found["place"]:
                found["done"] = True
                return {"observation": "Crafted 4 minecraft:planks", "reward": 1, "done": True}
            return {"observation": f"Could not execute {action}", "reward": 0, "done": False}

        return told(answer)

    add_close(standin, "id")
    return standin


def babyai() -> Standin:
    """Go to the ball. Items above 100 take so long that the success does not end the episode: BabyAIEnv.update."""
    standin = Standin()
    actions = '\nAvailable actions: ["turn left", "go to red ball 1", "check available actions"]'

    @standin.app.post("/create")
    def create() -> dict[str, Any]:
        return {"id": standin.new()}

    @standin.app.post("/reset")
    def reset(id: int = Body(), data_idx: int = Body()) -> dict[str, Any]:
        def answer() -> dict[str, Any]:
            started(standin, id, data_idx)
            seen = f"Your goal: go to the red ball {data_idx}\nYou see a red ball.{actions}"
            return {"observation": seen, "reward": 0, "score": 0, "deleted": False, "done": False}

        return told(answer)

    @standin.app.post("/step")
    def step(id: int = Body(), action: str = Body()) -> dict[str, Any]:
        def answer() -> dict[str, Any]:
            found = checked(standin, id)
            seen = "You see a red ball."
            if action == "go to red ball 1":
                found["reward"] = 0.4 if found["item"] > 100 else 0.9
                found["done"] = found["reward"] > 0.5
                seen = "You are there.\n The task is completed."
            elif action not in actions:
                seen = "The action is not recognized. Please check valid actions."
            reward = found.get("reward", 0)
            found["score"] += reward
            score = found["score"]
            return {"observation": seen + actions, "reward": reward, "score": score, "done": found["done"]}

        return told(answer)

    add_close(standin, "id")
    return standin


def sciworld() -> Standin:
    """Go to the kitchen (a third), focus on the right thing (full) or the wrong one (-100)."""
    standin = Standin()

    @standin.app.post("/create")
    def create() -> dict[str, Any]:
        return {"id": standin.new()}

    @standin.app.post("/reset")
    def reset(id: int = Body(), data_idx: int = Body()) -> dict[str, Any]:
        def answer() -> dict[str, Any]:
            started(standin, id, data_idx)
            place = {"task_name": "boil", "var_num": data_idx, "deleted": False, "done": False}
            seen = {"task_description": "Your task is to find a plant.", "observation": "This room is the hallway."}
            return {**place, **seen, "reward": 0, "score": 0}

        return told(answer)

    @standin.app.post("/step")
    def step(id: int = Body(), action: str = Body()) -> dict[str, Any]:
        points = {"go to kitchen": (33, False), "focus on plant": (100, True), "focus on agent": (-100, True)}

        def answer() -> dict[str, Any]:
            found = checked(standin, id)
            if action not in points:
                seen = "No known action matches that input."
                return {"observation": seen, "reward": 0, "score": int(found["score"]), "done": False}
            score, done = points[action]
            reward = score - found["score"]
            found.update(score=score, done=done)
            return {"observation": "Done.", "reward": reward, "score": score, "done": done}

        return told(answer)

    add_close(standin, "id")
    return standin


def webshop() -> Standin:
    """Search, click the product, buy it: reward 1, or 0.5 for the other product. Nothing is caught: errors are 500."""
    standin = Standin()
    pages = {
        "start": (True, ["search"]),
        "results": (False, ["back to search", "b01", "b02"]),
        "b01": (False, ["back to search", "buy now"]),
        "b02": (False, ["back to search", "buy now"]),
    }

    def page(found: dict[str, Any]) -> str:
        return f"WebShop [SEP] Instruction: [SEP] find a red mug number {found['item']} [SEP] {found['page']}"

    @standin.app.post("/create", response_model=int)
    def create() -> int:
        return standin.new()

    @standin.app.post("/reset")
    def reset(env_idx: int = Body(), session_id: int | None = Body(None)) -> tuple[str, None]:
        found = started(standin, env_idx, session_id or 0)
        found["page"] = "start"
        return page(found), None

    @standin.app.get("/observation", response_model=str)
    def observation(env_idx: int) -> str:
        return page(standin.open[env_idx])

    @standin.app.get("/available_actions")
    def available_actions(env_idx: int) -> dict[str, Any]:
        search, clicks = pages[standin.open[env_idx]["page"]]
        return {"has_search_bar": search, "clickables": clicks}

    @standin.app.post("/step")
    def step(env_idx: int = Body(), action: str = Body()) -> dict[str, Any]:
        standin.hear("step", action)
        found = standin.open[env_idx]
        reward, done = 0.0, False
        if action.startswith("search[") and pages[found["page"]][0]:
            found["page"] = "results"
        elif action.startswith("click[") and action[6:-1] in pages[found["page"]][1]:
            target = action[6:-1]
            if target == "buy now":
                reward, done = (1.0 if found["page"] == "b01" else 0.5), True
            found["page"] = {"back to search": "start", "buy now": "start", "search": "start"}.get(target, target)
        return {"state": page(found), "reward": reward, "done": done, "info": None}

    add_close(standin, "env_idx")
    return standin


def search() -> Standin:
    """The right answer is `Paris`; a wrong one may be followed by another. Errors are 500."""
    standin = Standin()

    @standin.app.post("/create", response_model=int)
    def create(id: int = Body(embed=True)) -> int:
        return standin.new()

    @standin.app.get("/observation", response_model=str)
    def observation(env_idx: int) -> str:
        return f"Question: what is the capital of France ({standin.open[env_idx]['item']})?"

    @standin.app.post("/reset", response_model=str)
    def reset(env_idx: int = Body(), id: int = Body()) -> str:
        started(standin, env_idx, id)
        return observation(env_idx)

    @standin.app.post("/step")
    def step(env_idx: int = Body(), action: str = Body()) -> dict[str, Any]:
        standin.hear("step", action)
        match = re.search(r"<(search|answer)>(.*?)</\1>", action, re.DOTALL)
        reply = {"observation": "Your previous action is invalid.", "reward": 0.0, "done": False, "info": None}
        if match and match[1] == "search":
            reply["observation"] = "<information>Doc 1(Title: France) Its capital is Paris.</information>"
        elif match and match[2].strip() == "Paris":
            reply |= {"observation": "Congratulations!", "reward": 1.0, "done": True}
        elif match:
            reply["observation"] = "Sorry, your answer is incorrect. Please try again."
        return reply

    add_close(standin, "env_idx")
    return standin


def webarena() -> Standin:
    """Click, then stop with the right answer. The reward before the end is whether the browser did as asked."""
    standin = Standin()

    @standin.app.post("/create")
    def create() -> dict[str, Any]:
        return {"env_idx": standin.new()}

    @standin.app.post("/reset")
    def reset(env_idx: int = Body(), idx: int = Body(), seed: int = Body()) -> dict[str, Any]:
        if idx >= BROKEN_ITEM:
            return {"observation": "TimeoutError", "sites": "Error", "object": "Error"}
        started(standin, env_idx, idx)
        return {"observation": "[1] link 'Shop'", "sites": ["shop"], "object": "how much is the mug?"}

    @standin.app.get("/observation")
    def observation(env_idx: int) -> str:
        return f"OBJECTIVE: how much is mug {standin.open[env_idx]['item']}?\n[1] link 'Shop'"

    @standin.app.post("/step")
    def step(env_idx: int = Body(), action: str = Body()) -> dict[str, Any]:
        standin.hear("step", action)
        match = re.search(r"```((.|\n)*?)```", action)
        meant = match[1].strip() if match else ""
        reply = {"observation": "[2] text '5'", "reward": 1.0, "terminated": False, "truncated": False, "info": {}}
        if meant.startswith("stop"):
            reply |= {"reward": float(meant == "stop [5]"), "terminated": True}
        elif not meant.startswith("click"):
            reply |= {"observation": f"Invalid action {meant}", "reward": 0, "info": None}
        return reply

    add_close(standin, "env_idx")
    return standin


def alfworld() -> Standin:
    """Take the mug. What is possible is listed in every reply. There is no route `close`."""
    standin = Standin()
    offered = ["go to desk 1", "take mug 1 from desk 1", "look"]

    @standin.app.post("/create")
    def create() -> dict[str, Any]:
        return {"id": standin.new()}

    @standin.app.post("/reset")
    def reset(id: int = Body(), game: int = Body(), world_type: str = Body()) -> dict[str, Any]:
        def answer() -> dict[str, Any]:
            started(standin, id, game)
            seen = f"Your task is to: take mug {game}."
            return {"id": id, "observation": seen, "available_actions": offered, "task_type": "pick"}

        return told(answer)

    @standin.app.post("/step")
    def step(id: int = Body(), action: str = Body()) -> dict[str, Any]:
        def answer() -> dict[str, Any]:
            found = checked(standin, id)
            found["done"] = action == "take mug 1 from desk 1"
            seen = "Done." if action in offered else "Nothing happens."
            won = float(found["done"])
            return {"observation": seen, "reward": won, "available_actions": offered, "done": found["done"]}

        return told(answer)

    return standin


STANDINS = {
    "textcraft": textcraft,
    "babyai": babyai,
    "sciworld": sciworld,
    "webshop": webshop,
    "search": search,
    "webarena": webarena,
    "alfworld": alfworld,
}


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An application on a free port of the loopback address; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def json_reply(reply: Any) -> Any:
    """An application that answers every request with one JSON value."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(reply).encode()})

    return app
