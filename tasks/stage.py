"""A stage: a plain function that becomes a cached, retried Prefect task.

    @stage("rollout", retries=2)
    def rollout(parameters: RolloutParameters, *, policy: Reference, task_set: Reference) -> Reference:
        with default_store().write("trajectories") as draft:
            ...
        return draft.reference

    rollout.named("grpo-or seed 1 iteration 7")(parameters, policy=policy, task_set=task_set)

`parameters` is one frozen pydantic model that holds only what the stage reads. All other arguments are references,
None, or lists or dictionaries of references. The cache key is a digest of the stage's name, its code, its parameters,
the digests of its inputs and the platform; in the parameters, paths of files and libraries are replaced by contents and
versions (`tasks.identity`). If a record does not belong to its key, or its artifact is missing or damaged, the result
is recomputed with a warning. Only infrastructure failures are retried: a bug or a wrong configuration fails at once.
Packages that take seconds to import (torch, transformers, vLLM) are imported inside the functions that compute: a
process that finds all its results in the store never imports them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import logging
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Generic, ParamSpec, get_type_hints

from pydantic import ValidationError

from tasks.identity import known_by_content
from tasks.observing import StageCall, current_observers
from tasks.prefect_records import recorded, share_record
from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import fingerprint, warn_of_edits
from turnwise.store.full_disk import telling_of_a_full_disk
from turnwise.store.notes import with_references
from turnwise.store.only_one import only_one
from turnwise.store.pruning import reading
from turnwise.store.remaking import Record

logger = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")


def stage(
    name: str,
    *,
    retries: int = 1,
    retry_delay_seconds: float = 2.0,
    code: Callable[[Any], Sequence[str]] | None = None,
    reads: Callable[[Any], Mapping[str, Any]] | None = None,
    platform_bound: bool = True,
) -> Callable[[Callable[Arguments, Reference]], Stage[Arguments]]:
    """Turn a function into a cached, retried stage.

    Args:
        name: name of the task in Prefect's UI, and of the folder of its records.
        retries: how often an infrastructure failure is retried.
        retry_delay_seconds: seconds to wait before each retry.
        code: maps the parameters to the names of further modules that the result depends on and that the function's
            own module does not import, such as the module of the world.
        reads: maps the parameters to what else the result depends on, as plain values: contents of files and versions
            of packages that plug-ins declare.
        platform_bound: whether the result's bits depend on processor and package versions.
    """

    def decorate(function: Callable[Arguments, Reference]) -> Stage[Arguments]:
        return Stage(name, function, retries, retry_delay_seconds, code, reads, platform_bound)

    return decorate


class Stage(Generic[Arguments]):
    """A cached, retried Prefect task around a function: see `stage`."""

    def __init__(
        self,
        name: str,
        function: Callable[Arguments, Reference],
        retries: int,
        retry_delay_seconds: float,
        code: Callable[[Any], Sequence[str]] | None,
        reads: Callable[[Any], Mapping[str, Any]] | None,
        platform_bound: bool,
    ) -> None:
        self.name = name
        self.function = function
        self.retries = retries
        self.retry_delay_seconds = retry_delay_seconds
        self.code = code
        self.reads = reads
        self.platform_bound = platform_bound
        self.signature = inspect.signature(function)
        functools.update_wrapper(self, function)
        _refuse_unsuitable(self)
        _stages[name] = self
        _declared.append(function.__module__)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Reference:
        """Run the stage or reuse its cached result; labelled with the stage's name in Prefect's UI."""
        return self._run(self.name, *args, **kwargs)

    def named(self, label: str) -> Callable[Arguments, Reference]:
        """The stage with a display label (variant, seed, iteration). The label is not part of the cache key."""
        return functools.partial(self._run, label)

    def key(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
        """The cache key of a call with these arguments: `<name>/<digest>`."""
        return f"{self.name}/{digest_of(self._ingredients(*args, **kwargs))}"

    def _run(self, label: str, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Reference:
        began = time.perf_counter()
        for observer in current_observers.get():
            observer.started(self.name, label)
        ingredients = self._ingredients(*args, **kwargs)
        digest = digest_of(ingredients)
        key = f"{self.name}/{digest}"
        computed = False

        def compute() -> Reference:
            nonlocal computed
            computed = True
            with telling_of_a_full_disk():
                return self._compute(digest, ingredients, *args, **kwargs)

        from tasks.prefect_task import TaskCall, run_as_task

        call = TaskCall(label if label == self.name else f"{label}: {self.name}", key, compute)
        found = _is_recorded(key, label)
        with nullcontext() if found else only_one(key):
            reference = run_as_task(
                self.function,
                call,
                name=self.name,
                recorded=found or _is_recorded(key),
                retries=self.retries,
                retry_delay_seconds=self.retry_delay_seconds,
            )
            if computed:
                share_record(key, default_store())
        for observer in current_observers.get():
            seconds = time.perf_counter() - began
            observer.finished(StageCall(self.name, label, reference, not computed, seconds, key))
        return reference

    def _compute(
        self, digest: str, ingredients: dict[str, Any], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Reference:
        warn_of_edits(self._modules(self._arguments(*args, **kwargs)["parameters"]), without=[__name__])
        began = time.perf_counter()
        with reading():
            reference = self.function(*args, **kwargs)
        if not isinstance(reference, Reference):
            raise TypeError(f"a stage returns one Reference; {self.name} returned {type(reference).__name__}")
        store = default_store()
        called_with = self._arguments(*args, **kwargs)["parameters"].model_dump(mode="json")
        store.record_lineage(
            reference, digest, {**ingredients, "called_with": called_with, **run_environment.code_state()}
        )
        store.record_clock(reference, {"seconds": time.perf_counter() - began})
        return reference

    def again(self, record: Record) -> Reference:
        """Recompute the call that a provenance record describes, outside Prefect and its cache.

        Raises:
            ArtifactError: the stage no longer accepts these parameters or inputs.
        """
        try:
            bound = self.signature.bind(self._read_parameters(record), **with_references(record["inputs"]))
        except (ValidationError, TypeError) as error:
            raise ArtifactError(
                f"to compute again what the stage {self.name} has made, it must take the parameters and the inputs of "
                f"then; it does not any more ({error}): use the code that made it, of commit {record['commit']}, or "
                "run the experiment again"
            ) from error
        return self.function(*bound.args, **bound.kwargs)

    def differs(self, record: Record) -> str:
        """How code and platform differ from those in a provenance record; empty where they do not."""
        now = self._made_by(self._read_parameters(record))
        return "; ".join(
            f"{name} was {json.dumps(record[name])} and is {json.dumps(now[name])}"
            for name in now
            if now[name] != record[name]
        )

    def _read_parameters(self, record: Record) -> Any:
        model = get_type_hints(self.function)["parameters"]
        return model.model_validate_json(json.dumps(record.get("called_with", record["parameters"])))

    def _ingredients(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> dict[str, Any]:
        """Everything that the result depends on: the cache key is its digest."""
        _read_declared_sources()
        inputs = self._arguments(*args, **kwargs)
        parameters = inputs.pop("parameters")
        read = self.reads(parameters) if self.reads else {}
        return {
            **({"reads": dict(read)} if read else {}),
            "stage": self.name,
            "parameters": known_by_content(parameters),
            "inputs": {name: _digests(value, f"{self.name}'s input {name}") for name, value in inputs.items()},
            **self._made_by(parameters),
        }

    def _made_by(self, parameters: Any) -> dict[str, Any]:
        """Fingerprint of the code, and the platform where the result depends on it."""
        return {
            "code": fingerprint(self._modules(parameters), without=[__name__]),
            "platform": run_environment.platform() if self.platform_bound else None,
        }

    def _arguments(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _modules(self, parameters: Any) -> list[str]:
        return [self.function.__module__, *(self.code(parameters) if self.code else [])]


_stages: dict[str, Stage[Any]] = {}
"""All stages declared in this process, by name."""


def stage_of(record: Record) -> Stage[Any]:
    """The stage that a provenance record names; imports all modules of this package if it is not loaded yet."""
    if record["stage"] not in _stages:
        package = __name__.rpartition(".")[0]
        for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{package}."):
            importlib.import_module(module.name)
    if record["stage"] not in _stages:
        raise ArtifactError(
            f"what was pruned is made again by the stage that made it; there is no stage {record['stage']} any more: "
            f"use the code that made it, of commit {record['commit']}, or run the experiment again"
        )
    return _stages[record["stage"]]


_declared: list[str] = []
"""The modules of stages whose sources are not yet fingerprinted. The first call reads them all, soon after import."""


def _read_declared_sources() -> None:
    while _declared:
        fingerprint([_declared.pop()], without=[__name__])


def _refuse_unsuitable(stage: Stage[Any]) -> None:
    other = _stages.get(stage.name)
    if other is not None and _place_of(other) != _place_of(stage):  # the same place: its module was loaded again
        raise ConfigurationError(
            f"a stage's name must be its own, since its results are recorded and found under it; {_place_of(stage)} "
            f"declares the stage {stage.name!r}, which {_place_of(other)} declares too: give one of them another name"
        )
    if next(iter(stage.signature.parameters), None) != "parameters":
        raise ConfigurationError(
            f"a stage's first argument must be `parameters`, the model of what it reads; {stage.name} has "
            f"{stage.signature}"
        )
    if stage.function.__module__ == "__main__":
        raise ConfigurationError(
            f"a stage must be defined in a module that others can import, to know its code; {stage.name} is defined in "
            "the script that was started: move it to a module of its own"
        )


def _place_of(stage: Stage[Any]) -> str:
    return f"{stage.function.__module__}.{stage.function.__qualname__}"


def _digests(value: Any, what: str) -> Any:
    """Replace the references in an input by their digests; the structure stays the same."""
    if value is None:
        return None
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, list | tuple):
        return [_digests(item, what) for item in value]
    if isinstance(value, dict):
        return {str(name): _digests(item, what) for name, item in value.items()}
    raise TypeError(
        f"{what} must be a Reference, or None, a list or a dict of them; it holds a {type(value).__name__}: values "
        "belong into the parameters, data into an artifact"
    )


def _is_recorded(key: str, label: str = "") -> bool:
    """Whether a usable result is recorded under the key: see `tasks.prefect_records`. With a label it warns."""
    try:
        return recorded(key, default_store()) is not None
    except ArtifactError as error:
        if label:
            again = "%s was computed before, but its result cannot be used; it is computed again. %s"
            logger.warning(again, label, error)
        return False
