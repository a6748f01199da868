"""What a stage's result depends on, as `depends_on` declares it, and the cache key that follows from it.

    @task(name="rollout", task_run_name="{label}: rollout", retries=1)
    @depends_on(kernel=("turnwise.agent.sampling",), writes="trajectories 1", code=playing_code, reads=playing_reads)
    def rollout(
        parameters: RolloutParameters, *, policy: Reference, task_set: Reference, label: str = "rollout"
    ) -> Reference:
        with default_store().write("trajectories") as draft:
            ...
        return draft.reference

    rollout(parameters, policy=policy, task_set=task_set, label="grpo-or seed 1 iteration 7")

`parameters` is one frozen pydantic model that holds only what the task reads. All other arguments are references, None,
or lists or dictionaries of references; `label` is for display. The cache key is a digest of the task's name, the layout
of the files that it writes, the code of its kernel (what computes, not what runs, stores or shows it), of the function
itself and of what it uses of `tasks`, its parameters, the digests of its inputs, and the platform where bits depend on
it. In the parameters, paths of files and libraries are replaced by contents and versions (`known_by_content`).

`@task` is Prefect's (`tasks.orchestration`), with a cache policy that looks for a result under this key. A plan asks
for the same key without Prefect.

Packages that take seconds to import (torch, transformers, vLLM) are imported inside the functions that compute: a
process that finds all its results in the store never imports them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, get_type_hints

from pydantic import ValidationError

from turnwise.errors import ArtifactError, ConfigurationError
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import DETERMINES_NOTHING, fingerprint, function_digest, warn_of_edits
from turnwise.store.full_disk import report_full_disk
from turnwise.store.notes import with_references
from turnwise.store.plugin_identity import from_outside, known_by_content
from turnwise.store.pruning import reading
from turnwise.store.remaking import Record
from turnwise.store.stage_records import share_record
from turnwise.training_runs.observing import StageCall, current_observers, notify

if TYPE_CHECKING:
    from prefect import Task

Arguments = ParamSpec("Arguments")

failed_lookup: ContextVar[Exception | None] = ContextVar("failed_lookup", default=None)
"""Why the key or the record of the current call is not known. Prefect takes any such error for a missing record."""


RUNS_STAGES = ("tasks.caching", "tasks.calls", "tasks.orchestration", "tasks.restoring")
"""What of this package says when a stage runs and opens its inputs: in no key."""


@dataclass(frozen=True)
class Dependencies:
    """What the result of a task depends on, as `depends_on` declares it."""

    function: Callable[..., Reference]
    """The function that computes."""
    kernel: Sequence[str] | None
    writes: str
    code: Callable[[Any], Sequence[str]] | None
    reads: Callable[[Any], Mapping[str, Any]] | None
    platform_bound: bool

    @property
    def name(self) -> str:
        """The name of the function, of the task, and of the folder of its records."""
        return self.function.__name__

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The arguments of the task."""
        return inspect.signature(self.function)

    def key(self, *args: Any, **kwargs: Any) -> str:
        """The cache key of a call with these arguments: `<name>/<digest>`."""
        return f"{self.name}/{digest_of(self.ingredients(*args, **kwargs))}"

    def ingredients(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Everything that the result depends on: the cache key is its digest."""
        _read_declared_sources()
        inputs = self.arguments(*args, **kwargs)
        inputs.pop("label", None)
        parameters = inputs.pop("parameters")
        plugin_inputs = self.reads(parameters) if self.reads else {}
        return {
            **({"reads": dict(plugin_inputs)} if plugin_inputs else {}),
            "stage": self.name,
            "parameters": known_by_content(parameters),
            "inputs": {name: _digests(value, f"{self.name}'s input {name}") for name, value in inputs.items()},
            **self.made_by(parameters),
        }

    def made_by(self, parameters: Any) -> dict[str, Any]:
        """What the result depends on besides parameters and inputs.

        That is the code that computes it, the function's own code, the layout of its files, and the platform where its
        bits depend on that.
        """
        return {
            "code": fingerprint(self.modules(parameters), without=self.left_out),
            "call": self.own_code,
            "writes": self.writes,
            "platform": run_environment.platform() if self.platform_bound else None,
        }

    def beside_settings(self, parameters: Any) -> dict[str, Any]:
        """What the result depends on besides settings, inputs and platform: code, and what lies outside the project.

        That is what a tool cannot see which knows the project's files and parameters, as DVC does.
        """
        outside = {".".join(map(str, place)): content for place, content in from_outside(parameters).items()}
        plugin_inputs = self.reads(parameters) if self.reads else {}
        return {**self.made_by(parameters), "platform": None, "reads": dict(plugin_inputs), "outside": outside}

    def modules(self, parameters: Any) -> list[str]:
        """The modules whose code, with all that they import, the result depends on."""
        return [*self.computing_modules, *(self.code(parameters) if self.code else [])]

    @property
    def computing_modules(self) -> Sequence[str]:
        """Those of `modules` that are the same for all parameters."""
        return [self.function.__module__] if self.kernel is None else self.kernel

    @property
    def own_code(self) -> str:
        """A digest of the function's own code, and of what it uses of its package besides what runs stages."""
        return function_digest(self.function, without=RUNS_STAGES)

    @property
    def left_out(self) -> Sequence[str]:
        """The modules and packages that are not in the key, also where the others import them."""
        return [__name__, "tasks.orchestration.deferred"] if self.kernel is None else [*DETERMINES_NOTHING]

    def arguments(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """All arguments of a call by name, defaults included."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def read_parameters(self, record: Record) -> Any:
        """The parameters of a provenance record. Raises pydantic's ValidationError for another model's."""
        model = get_type_hints(self.function)["parameters"]
        return model.model_validate_json(json.dumps(record.get("called_with", record["parameters"])))


def depends_on(
    *,
    kernel: Sequence[str] | None = None,
    writes: str = "",
    code: Callable[[Any], Sequence[str]] | None = None,
    reads: Callable[[Any], Mapping[str, Any]] | None = None,
    platform_bound: bool = True,
) -> Callable[[Callable[Arguments, Reference]], Callable[Arguments, Reference]]:
    """Declare what a task's result depends on besides its arguments, and record how each result was made.

    Args:
        kernel: the names of the library's modules that compute the result. Their code and that of what they import is
            in the key, and the function's own code. None: the code of the function's module and of all that it imports.
        writes: the layout of the files that the task writes, with its version. It is declared where they are written.
        code: maps the parameters to the names of further modules that the result depends on, such as the module of the
            world.
        reads: maps the parameters to what else the result depends on, as plain values: contents of files and versions
            of packages that plug-ins declare.
        platform_bound: whether the result's bits depend on processor and package versions.
    """

    def decorate(function: Callable[Arguments, Reference]) -> Callable[Arguments, Reference]:
        dependencies = Dependencies(function, kernel, writes, code, reads, platform_bound)
        _declare(dependencies)

        @functools.wraps(function)
        def compute(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Reference:
            label = str(dependencies.arguments(*args, **kwargs).get("label", dependencies.name))
            if (error := failed_lookup.get()) is not None:
                raise error
            ingredients = dependencies.ingredients(*args, **kwargs)
            for observer in current_observers.get():
                observer.started(dependencies.name, label)
            began = time.perf_counter()
            with report_full_disk():
                reference = _run_and_record(dependencies, ingredients, *args, **kwargs)
            key, seconds = f"{dependencies.name}/{digest_of(ingredients)}", time.perf_counter() - began
            share_record(key, reference, default_store())
            notify(StageCall(dependencies.name, label, reference, False, seconds, key))
            return reference

        return compute

    return decorate


def _run_and_record(dependencies: Dependencies, ingredients: dict[str, Any], *args: Any, **kwargs: Any) -> Reference:
    """Call the function of a task; its provenance and its seconds are recorded with the artifact."""
    parameters = dependencies.arguments(*args, **kwargs)["parameters"]
    warn_of_edits(dependencies.modules(parameters), without=dependencies.left_out)
    began = time.perf_counter()
    with reading():
        reference = dependencies.function(*args, **kwargs)
    if not isinstance(reference, Reference):
        raise TypeError(f"a stage returns one Reference; {dependencies.name} returned {type(reference).__name__}")
    store, called_with = default_store(), parameters.model_dump(mode="json")
    store.record_lineage(
        reference, digest_of(ingredients), {**ingredients, "called_with": called_with, **run_environment.code_state()}
    )
    store.record_clock(reference, {"seconds": time.perf_counter() - began})
    return reference


def cache_key(task: Task[Arguments, Reference], *args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
    """The cache key of a call of a task: `<name>/<digest>`."""
    return dependencies_of(task).key(*args, **kwargs)


def dependencies_of(task: Task[..., Any]) -> Dependencies:
    """What a task's result depends on."""
    return _registry[task.fn.__name__]


def all_dependencies() -> dict[str, Dependencies]:
    """What every task's result depends on, by its name: of this package's, and of others that are imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{package}."):
        if not module.name.startswith(f"{package}.orchestration."):  # imports Prefect
            importlib.import_module(module.name)
    return dict(_registry)


def recompute(record: Record) -> Reference:
    """Compute again the call that a provenance record describes, outside Prefect and its cache.

    Raises:
        ArtifactError: there is no such stage any more, or it no longer accepts these parameters or inputs.
    """
    dependencies = _dependencies_in(record)
    try:
        parameters = dependencies.read_parameters(record)
        bound = dependencies.signature.bind(parameters, **with_references(record["inputs"]))
    except (ValidationError, TypeError) as error:
        raise ArtifactError(
            f"to compute again what the stage {dependencies.name} has made, it must take the parameters and the inputs "
            f"of then; it does not any more ({error}): use the code that made it, of commit {record['commit']}, or "
            "run the experiment again",
            "TW-stage-changed",
        ) from error
    return dependencies.function(*bound.args, **bound.kwargs)


def changed_since(record: Record) -> str:
    """How code and platform differ from those in a provenance record; empty where they do not."""
    dependencies = _dependencies_in(record)
    now = dependencies.made_by(dependencies.read_parameters(record))
    return "; ".join(
        f"{name} was {json.dumps(record.get(name))} and is {json.dumps(now[name])}"
        for name in now
        if now[name] != record.get(name)
    )


_registry: dict[str, Dependencies] = {}
"""All that `depends_on` has declared in this process, by the name of the task."""


def _dependencies_in(record: Record) -> Dependencies:
    """Those of the task that a record names; all modules of this package are imported if it is not loaded yet."""
    if record["stage"] not in _registry:
        all_dependencies()
    if record["stage"] not in _registry:
        raise ArtifactError(
            f"what was pruned is made again by the stage that made it; there is no stage {record['stage']} any more: "
            f"use the code that made it, of commit {record['commit']}, or run the experiment again",
            "TW-stage-gone",
        )
    return _registry[record["stage"]]


_unfingerprinted: list[Dependencies] = []
"""Of the tasks whose sources are not yet fingerprinted. The first call reads them all, soon after import."""


def _read_declared_sources() -> None:
    while _unfingerprinted:
        dependencies = _unfingerprinted.pop()
        fingerprint(dependencies.computing_modules, without=dependencies.left_out)
        dependencies.own_code  # noqa: B018  reads the sources


def _declare(dependencies: Dependencies) -> None:
    """Add the dependencies of a task. Raises ConfigurationError for a function that can be no stage."""
    name, function = dependencies.name, dependencies.function
    other = _registry.get(name)
    if other is not None and _origin(other) != _origin(dependencies):  # the same: its module was loaded again
        raise ConfigurationError(
            "a stage's name must be its own, since its results are recorded and found under it; "
            f"{_origin(dependencies)} declares the stage {name!r}, which {_origin(other)} declares too: give one "
            "of them another name",
            "TW-taken-name",
        )
    if next(iter(dependencies.signature.parameters), None) != "parameters":
        raise ConfigurationError(
            f"a stage's first argument must be `parameters`, the model of what it reads; {name} has "
            f"{dependencies.signature}",
            "TW-stage-signature",
        )
    if function.__module__ == "__main__":
        raise ConfigurationError(
            f"a stage must be defined in a module that others can import, to know its code; {name} is defined in "
            "the script that was started: move it to a module of its own",
            "TW-stage-in-script",
        )
    _registry[name] = dependencies
    _unfingerprinted.append(dependencies)


def _origin(dependencies: Dependencies) -> str:
    return f"{dependencies.function.__module__}.{dependencies.function.__qualname__}"


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
