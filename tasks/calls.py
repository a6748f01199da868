"""A call of a stage as data: a flow makes it, and a plan asks whether its result is recorded.

    roll = call(rollout, lambda: RolloutParameters(...), policy=policy, task_set=tasks, label="grpo seed 1 iteration 7")
    roll.make()        the result, computed now or found, as a task run of Prefect
    roll.recorded()    the result where it is recorded, without computing, logging or fetching anything

An input may be a result that is not recorded yet, `Unrecorded`: then neither is that of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel

from tasks.caching import cache_key, dependencies_of
from turnwise.errors import ArtifactError
from turnwise.store import Reference, default_store
from turnwise.store.digests import digest_of
from turnwise.store.stage_records import recorded

if TYPE_CHECKING:
    from prefect import Task

Inputs = ParamSpec("Inputs")
Parameters = TypeVar("Parameters", bound=BaseModel)


class Unrecorded(Reference):
    """Stands for the result of a call that is not recorded; its kind is the stage, its digest that of the label."""


@dataclass(frozen=True)
class Call:
    """A call of a stage, which is not made yet."""

    task: Task[..., Reference]
    build: Callable[[], BaseModel]
    """Builds the parameters, once they are asked for: a plan that only counts calls does without."""
    inputs: Mapping[str, Any]
    """References, None, or lists or dictionaries of references, by the names that the task has for them."""
    label: str
    """Names the call among those of its flow, wherever it is shown."""

    @property
    def stage(self) -> str:
        """The name of the task."""
        return self.task.fn.__name__

    @cached_property
    def parameters(self) -> BaseModel:
        """The model that holds what the stage reads. Raises ConfigurationError where that is not to be had here."""
        return self.build()

    @cached_property
    def key(self) -> str | None:
        """The cache key; None where the call reads a result that is not recorded. Raises as `parameters` does."""
        return None if _has_unrecorded(self.inputs) else cache_key(self.task, self.parameters, **self.inputs)

    def make(self) -> Reference:
        """The result, computed now or found in the store."""
        return self.task(self.parameters, **self.inputs, label=self.label)

    def recorded(self) -> Reference | None:
        """The result that is recorded and intact, or None. Raises as `parameters` does."""
        try:
            return None if self.key is None else recorded(self.key, default_store())
        except ArtifactError:
            return None

    @property
    def unrecorded(self) -> Unrecorded:
        """What stands for the result where it is not recorded."""
        return Unrecorded(kind=self.stage, digest=digest_of([self.stage, self.label]))


Make = Callable[[Call], Reference]
"""Makes a call, as a flow does (`Call.make`), or finds out what its result is, as a plan does."""


def call(
    task: Task[Concatenate[Parameters, Inputs], Reference],
    parameters: Callable[[], Parameters],
    *args: Inputs.args,
    **kwargs: Inputs.kwargs,
) -> Call:
    """A call of a task, with its parameters as they are built once they are asked for, and its inputs and label."""
    inputs = dict(kwargs)
    label = inputs.pop("label", dependencies_of(task).signature.parameters["label"].default)
    return Call(task, parameters, inputs, str(label))


def _has_unrecorded(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return any(map(_has_unrecorded, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Unrecorded)
