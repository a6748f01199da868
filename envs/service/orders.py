"""Protocol between the server and its worker processes: a line of JSON each way, and nothing pickled.

The first line to a worker names the world that it is to construct; its first answer has the number 0. After that every
order has its own number, which its answer repeats; orders may finish in any order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from envs.service.schema import Decided, EpisodeQuestion
from turnwise.world import Observation, Step, Task


class WireLine(BaseModel):
    """One line between two processes of the same version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_line(self) -> bytes:
        """The line as it is sent."""
        return self.model_dump_json().encode() + b"\n"


class Begin(WireLine):
    """The world that a worker constructs."""

    world: str
    parameters: dict[str, Any]


class Make(WireLine):
    """Make an environment."""

    call: Literal["make"] = "make"
    task: Task
    seed: int


class Reset(WireLine):
    """Reset the environment."""

    call: Literal["reset"] = "reset"


class PlayOrder(WireLine):
    """Play an action."""

    call: Literal["step"] = "step"
    action: str


class AskOrder(WireLine):
    """Ask a baseline policy for its action."""

    call: Literal["decide"] = "decide"
    question: EpisodeQuestion


class Close(WireLine):
    """Close the environment."""

    call: Literal["close"] = "close"


class Order(WireLine):
    """One call of one environment."""

    number: int
    environment: int
    what: Annotated[Make | Reset | PlayOrder | AskOrder | Close, Field(discriminator="call")]


class Failure(WireLine):
    """An exception that a world raised."""

    kind: str
    message: str


class WorkerAnswer(WireLine):
    """Result of the order with this number: one of the four fields, or none where there is nothing to return."""

    number: int
    observation: Observation | None = None
    step: Step | None = None
    decided: Decided | None = None
    failure: Failure | None = None
