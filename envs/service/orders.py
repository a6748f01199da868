"""What the server and its worker processes say to one another: a line of JSON each way, and nothing pickled.

The first line to a worker says which world it is to make; its first answer has the number 0. After that every order has
a number of its own, and so has its answer, in whatever order they are done.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import Observation, Step, Task


class WireLine(BaseModel):
    """One line, on its way between two processes of one version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def written(self) -> bytes:
        """The line as it is sent."""
        return self.model_dump_json().encode() + b"\n"


class Begin(WireLine):
    """The world that a worker is for."""

    world: str
    parameters: dict[str, Any]


class Make(WireLine):
    """Make an environment."""

    call: Literal["make"] = "make"
    task: Task
    seed: int


class Reset(WireLine):
    """Reset it."""

    call: Literal["reset"] = "reset"


class PlayOrder(WireLine):
    """Play an action."""

    call: Literal["step"] = "step"
    action: str


class AskOrder(WireLine):
    """Ask a player."""

    call: Literal["decide"] = "decide"
    question: EpisodeQuestion


class Close(WireLine):
    """Close it."""

    call: Literal["close"] = "close"


class Order(WireLine):
    """One call of one environment."""

    number: int
    environment: int
    what: Annotated[Make | Reset | PlayOrder | AskOrder | Close, Field(discriminator="call")]


class Failure(WireLine):
    """What a world raised."""

    kind: str
    message: str


class WorkerAnswer(WireLine):
    """What came of the order with this number: one of the four, or none of them where there is nothing to say."""

    number: int
    observation: Observation | None = None
    step: Step | None = None
    decided: Decided | None = None
    failure: Failure | None = None
