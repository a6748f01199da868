"""The service's schema, version 2: requests and replies as pydantic models.

Tasks, observations, steps, limits and scripted actions are the classes of the contract, so the schema cannot deviate
from `turnwise.world`. Numbers sent as JSON come back bit for bit. Requests are closed: an unknown field is refused.
Replies are validated strictly. A change that an older client could not read gets another prefix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from envs.service.generator_state import GeneratorState
from turnwise.world import (
    SPLITS,
    Column,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
)

SCHEMA_VERSION = 2
PREFIX = f"/v{SCHEMA_VERSION}"
"""Prefix of every route."""
MOST_AT_ONCE = 1024
"""Maximum number of entries in a batch, and of tasks in a page."""
MOST_TASKS = 200_000
"""Maximum number of tasks of a split that can be listed, in pages."""
LISTING_SECONDS = 600.0
"""Seconds for listing tasks: a world may have to make every board of a large task set, once."""

Content = TypeVar("Content")
WITHOUT_DOCSTRINGS = ConfigDict(use_attribute_docstrings=False)
"""For generic models: pydantic would search all modules for the source of each, which takes seconds."""


class ServiceRequest(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServiceReply(BaseModel):
    """What the server answers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Fault(ServiceReply):
    """Why there is no reply."""

    code: str
    """One of `envs.service.reasons.Reason`."""
    message: str
    """For people: what must hold, what was found, what to do."""


class ErrorReply(ServiceReply):
    """The body of every answer that is not a success."""

    error: Fault


class Health(ServiceReply):
    """The server answers."""

    status: str
    schema_version: int


class WorldFacts(ServiceReply):
    """What a world says of itself. See `turnwise.world.World` for what each field means."""

    name: str
    version: str
    instruction: str
    grammar: str
    limits: Limits
    limits_differ: bool
    """Whether tasks have limits of their own, which must be asked for."""
    split_sizes: dict[Split, int | None]
    """None where a split has no end."""
    verbs: list[str] | None
    """In order."""
    baselines: list[str]
    names_states: bool
    primary_metric: str
    oracle_success: FiniteFloat
    rewards: dict[str, Reward]
    columns: list[Column]
    attribution: str | None

    @classmethod
    def of(cls, world: World) -> WorldFacts:
        """The facts of a world."""
        return cls(
            name=world.name,
            version=world.version,
            instruction=world.instruction,
            grammar=world.grammar,
            limits=world.limits,
            limits_differ=type(world).limits_of is not World.limits_of,
            split_sizes={split: world.split_size(split) for split in SPLITS},
            verbs=None if world.verbs is None else sorted(world.verbs),
            baselines=list(world.baselines),
            names_states=world.names_states,
            primary_metric=world.primary_metric,
            oracle_success=world.oracle_success,
            rewards=dict(world.rewards),
            columns=list(world.columns),
            attribution=world.attribution(),
        )


class ServedWorld(ServiceReply):
    """A world as it is served: with one set of parameters."""

    id: str
    """What requests call it: a digest of all that follows, and of code and data where these are known, so that a client
    never plays another world than it saw."""
    world: str
    """The name that the server was started with: an installed world's, or `module:Class`."""
    parameters: dict[str, Any]
    """The parameters that the server was started with."""
    facts: WorldFacts

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any], world: World, content: str = "") -> ServedWorld:
        """A world, and how it was made. `content`: a digest of its code and of what it reads, where that is known."""
        unnamed = cls(id="", world=name, parameters=dict(parameters), facts=WorldFacts.of(world))
        digest = hashlib.sha256(f"{unnamed.model_dump_json()}{content}".encode()).hexdigest()[:16]
        readable = re.sub(r"[^0-9A-Za-z_.-]", "_", world.name)
        return unnamed.model_copy(update={"id": f"{readable}-{digest}"})


class Worlds(ServiceReply):
    """All that is served."""

    worlds: list[ServedWorld]


class Tasks(ServiceReply):
    """A page of the first tasks of a split, in order."""

    tasks: list[Task]


class AboutTask(ServiceRequest):
    """Ask for what is said of one task."""

    task: Task


class TaskLimits(ServiceReply):
    """The limits of one task."""

    limits: Limits


class Create(ServiceRequest):
    """Make an environment for one episode."""

    world: str
    """The id of a served world."""
    task: Task
    seed: int
    """Of the episode's own noise."""
    key: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    """The client's own name for this request: sent again, it is answered with the same episode."""


class Created(ServiceReply):
    """An episode was made, and waits for its reset."""

    episode: str
    lease_seconds: FiniteFloat
    """The episode is freed when nothing is asked of it for so long."""


class Seen(ServiceReply):
    """The first observation of an episode."""

    observation: Observation


class PlayStep(ServiceRequest):
    """Play one action."""

    number: Annotated[int, Field(ge=1)]
    """1 for the first step. The last number again is answered with what was recorded, and not played twice."""
    action: str


class EpisodeQuestion(ServiceRequest):
    """Ask what a scripted baseline policy does now."""

    baseline: str
    remaining: Remaining
    generator: GeneratorState | None = None
    """What a baseline policy that draws draws from. Only the oracle may go without."""

    @model_validator(mode="after")
    def _require_a_generator(self) -> EpisodeQuestion:
        if self.generator is None and self.baseline != "oracle":
            raise ValueError(f"the baseline policy {self.baseline!r} must be given a generator's state; found none")
        return self


class Stepped(ServiceReply):
    """The world's answer to the step with this number."""

    number: int
    step: Step


class Decided(ServiceReply):
    """What the baseline policy does, and where the generator stands after its draws."""

    decision: ScriptedAction
    generator: GeneratorState | None


class EpisodeStanding(ServiceReply):
    """Where an episode stands: what was seen last, after so many steps."""

    number: int
    observation: Observation
    terminated: bool
    truncated: bool
    success: bool


class Closed(ServiceReply):
    """The episode is no more."""

    closed: bool
    """False where there was none: it was closed before, or its lease ran out."""


class CreateMany(ServiceRequest):
    """Make many environments."""

    episodes: Annotated[list[Create], Field(min_length=1, max_length=MOST_AT_ONCE)]


class Many(ServiceRequest):
    """Reset or close many episodes."""

    episodes: Annotated[list[str], Field(min_length=1, max_length=MOST_AT_ONCE)]


class StepOf(PlayStep):
    """A step of one episode among many."""

    episode: str


class StepMany(ServiceRequest):
    """Play one step in each of many episodes."""

    steps: Annotated[list[StepOf], Field(min_length=1, max_length=MOST_AT_ONCE)]


class Outcome(ServiceReply, Generic[Content]):
    """What came of one entry of a batch: a reply, or why there is none."""

    model_config = WITHOUT_DOCSTRINGS

    reply: Content | None = None
    error: Fault | None = None


class Batch(ServiceReply, Generic[Content]):
    """What came of every entry of a batch, in order. One that fails leaves the others alone."""

    model_config = WITHOUT_DOCSTRINGS

    outcomes: list[Outcome[Content]]
