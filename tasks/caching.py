"""What makes a Prefect task of this project cached by content: `BY_CONTENT` and `depends_on`.

    @task(name="rollout", task_run_name="{label}: rollout", retries=1, **BY_CONTENT_OPTIONS)
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
of the files that it writes, the code of its kernel (what computes, not what runs, stores or shows it) and of the
function itself, its parameters, the digests of its inputs, and the platform where bits depend on it. In the parameters,
paths of files and libraries are replaced by contents and versions (`tasks.identity`).

Prefect writes what a task returned to `<home>/results/<name>/<digest of the cache key>` and looks for it there
(`tasks.prefect_records`). If a record does not belong to its key, or its artifact is missing or damaged, the task runs
again, with a warning. One process computes a key at a time (`turnwise.store.only_one`). Only infrastructure failures
are retried: a bug or a wrong configuration fails at once.

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
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, get_type_hints

from prefect import Task
from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem, WritableFileSystem
from prefect.locking.protocol import LockManager
from prefect.results import ResultRecord, ResultRecordMetadata
from prefect.serializers import Serializer
from pydantic import ValidationError

from tasks.identity import known_by_content
from tasks.observing import StageCall, current_observers, notify
from tasks.prefect_records import recorded, records_folder, share_record
from turnwise.errors import ArtifactError, ConfigurationError, WorldLost
from turnwise.store import Reference, default_store, run_environment
from turnwise.store.digests import digest_of
from turnwise.store.fingerprint import DETERMINES_NOTHING, fingerprint, function_digest, warn_of_edits
from turnwise.store.full_disk import telling_of_a_full_disk
from turnwise.store.notes import with_references
from turnwise.store.only_one import only_one
from turnwise.store.pruning import reading
from turnwise.store.remaking import Record

logger = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")

_OUR_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_failed_lookup: ContextVar[Exception | None] = ContextVar("failed_lookup", default=None)
"""Why the key or the record of the current call is not known. Prefect takes any such error for a missing record."""


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
        read = self.reads(parameters) if self.reads else {}
        return {
            **({"reads": dict(read)} if read else {}),
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
            "call": function_digest(self.function),
            "writes": self.writes,
            "platform": run_environment.platform() if self.platform_bound else None,
        }

    def modules(self, parameters: Any) -> list[str]:
        """The modules whose code, with all that they import, the result depends on."""
        return [*self.computing_modules, *(self.code(parameters) if self.code else [])]

    @property
    def computing_modules(self) -> Sequence[str]:
        """Those of `modules` that are the same for all parameters."""
        return [self.function.__module__] if self.kernel is None else self.kernel

    @property
    def left_out(self) -> Sequence[str]:
        """The modules and packages that are not in the key, also where the others import them."""
        return [__name__] if self.kernel is None else [*DETERMINES_NOTHING]

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
            if (error := _failed_lookup.get()) is not None:
                raise error
            ingredients = dependencies.ingredients(*args, **kwargs)
            for observer in current_observers.get():
                observer.started(dependencies.name, label)
            began = time.perf_counter()
            with telling_of_a_full_disk():
                reference = _computed(dependencies, ingredients, *args, **kwargs)
            key, seconds = f"{dependencies.name}/{digest_of(ingredients)}", time.perf_counter() - began
            share_record(key, reference, default_store())
            notify(StageCall(dependencies.name, label, reference, False, seconds, key))
            return reference

        return compute

    return decorate


def _computed(dependencies: Dependencies, ingredients: dict[str, Any], *args: Any, **kwargs: Any) -> Reference:
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


class ByContent(CachePolicy):
    """A task's result is that of an earlier run with the same content: see `Dependencies.ingredients`."""

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str | None:
        """The cache key of a call; None where it cannot be computed: the task then raises the error."""
        # Prefect takes for a task a folder that is fixed at import, or a storage that its server knows.
        task_ctx.result_store.result_storage = LocalFileSystem(basepath=str(records_folder()))
        _failed_lookup.set(None)
        try:
            return dependencies_of(task_ctx.task).key(**inputs)
        except Exception as error:
            _failed_lookup.set(error)
            return None


class Records(WritableFileSystem):
    """The records that can be trusted, as Prefect looks for them. It writes each to its folder, before its metadata."""

    _block_type_slug = "turnwise-records"

    def read_path(self, path: str, _sync: bool = True) -> bytes:  # type: ignore[override]
        """What Prefect notes of the record of a cache key. Raises FileNotFoundError where none can be used."""
        try:
            reference = recorded(path, default_store())
        except ArtifactError as error:
            context = TaskRunContext.get()
            logger.warning(
                "%s was computed before, but its result cannot be used; it is computed again. %s",
                path if context is None else context.task_run.name,
                error,
            )
            reference = None
        except Exception as error:
            _failed_lookup.set(error)
            raise
        if reference is None:
            raise FileNotFoundError(path)
        # Where it lies now: a project may be moved or copied.
        return ResultRecordMetadata(
            storage_key=str(records_folder() / path), serializer=ReferenceSerializer()
        ).dump_bytes()

    def write_path(self, path: str, content: bytes, _sync: bool = True) -> None:  # type: ignore[override]
        """Nothing: the record itself says all, and its metadata follow from the key."""


class ReferenceSerializer(Serializer):
    """A record is the reference as JSON: nothing is pickled, and no class is named that would be imported."""

    type: Literal["turnwise-reference"] = "turnwise-reference"

    def dumps(self, obj: Any) -> bytes:
        """The reference as JSON. Prefect also keeps the exception of a failed run, which is never read: its text."""
        return (obj.model_dump_json() if isinstance(obj, Reference) else json.dumps(repr(obj))).encode()

    def loads(self, blob: bytes) -> Reference:
        """The reference. Raises pydantic's ValidationError for anything else."""
        return Reference.model_validate_json(blob)


class OneAtATime(LockManager):
    """`turnwise.store.only_one` as Prefect's transactions lock: one process or thread of this home for a cache key."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, AbstractContextManager[None]]] = {}

    def acquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """Wait for the lock of a key, and take it."""
        lock = only_one(key)
        lock.__enter__()
        self._held[key] = holder, lock
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        """The same for a task that is a coroutine, of which there is none."""
        return self.acquire_lock(key, holder)

    def release_lock(self, key: str, holder: str) -> None:
        """Give the lock of a key back."""
        _, lock = self._held.pop(key)
        lock.__exit__(None, None, None)

    def is_locked(self, key: str) -> bool:
        """Whether this process holds the lock of a key."""
        return key in self._held

    def is_lock_holder(self, key: str, holder: str) -> bool:
        """Whether this holder has the lock of a key."""
        return key in self._held and self._held[key][0] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """Wait until nobody has the lock of a key."""
        with only_one(key):
            return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        """The same for a task that is a coroutine, of which there is none."""
        return self.wait_for_lock(key)


def infrastructure_failed(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a retry can help: a lost world, a broken connection, a full disk; not a bug or a wrong parameter."""
    error = state.data
    return isinstance(error, WorldLost | OSError) and not isinstance(error, _OUR_MISTAKES)


def report_cached(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> None:
    """Notify the observers of a result that was found; of one that was computed, `depends_on` has."""
    context = TaskRunContext.get()
    if state.name != "Cached" or context is None or not isinstance(state.data, ResultRecord):
        return
    label = str(context.parameters.get("label", task.name))
    key = Path(str(state.data.metadata.storage_key)).relative_to(records_folder()).as_posix()
    notify(StageCall(task.name, label, state.data.result, True, task_run.total_run_time.total_seconds(), key))


BY_CONTENT = ByContent().configure(key_storage=Records(), lock_manager=OneAtATime(), isolation_level="SERIALIZABLE")
"""The cache policy of every stage."""

BY_CONTENT_OPTIONS: Mapping[str, Any] = {
    "cache_policy": BY_CONTENT,
    "persist_result": True,
    "result_serializer": ReferenceSerializer(),
    "cache_result_in_memory": False,
    "retry_condition_fn": infrastructure_failed,
    "retry_delay_seconds": 2.0,
    "on_completion": [report_cached],
}
"""The options of Prefect's `@task` that all stages share. A stage that is retried says how often."""


def cache_key(task: Task[Arguments, Reference], *args: Arguments.args, **kwargs: Arguments.kwargs) -> str:
    """The cache key of a call of a task: `<name>/<digest>`."""
    return dependencies_of(task).key(*args, **kwargs)


def dependencies_of(task: Task[..., Any]) -> Dependencies:
    """What a task's result depends on."""
    return _declared[task.fn.__name__]


def declared_dependencies() -> dict[str, Dependencies]:
    """What the result of every task depends on that is declared in this process, by the name of the task."""
    return dict(_declared)


def all_dependencies() -> dict[str, Dependencies]:
    """As `declared_dependencies`, after all modules of this package have been imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{package}."):
        importlib.import_module(module.name)
    return declared_dependencies()


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
            "run the experiment again"
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


_declared: dict[str, Dependencies] = {}
"""All that `depends_on` has declared in this process, by the name of the task."""


def _dependencies_in(record: Record) -> Dependencies:
    """Those of the task that a record names; all modules of this package are imported if it is not loaded yet."""
    if record["stage"] not in _declared:
        all_dependencies()
    if record["stage"] not in _declared:
        raise ArtifactError(
            f"what was pruned is made again by the stage that made it; there is no stage {record['stage']} any more: "
            f"use the code that made it, of commit {record['commit']}, or run the experiment again"
        )
    return _declared[record["stage"]]


_unread: list[Dependencies] = []
"""Of the tasks whose sources are not yet fingerprinted. The first call reads them all, soon after import."""


def _read_declared_sources() -> None:
    while _unread:
        dependencies = _unread.pop()
        fingerprint(dependencies.computing_modules, without=dependencies.left_out)
        function_digest(dependencies.function)


def _declare(dependencies: Dependencies) -> None:
    """Add the dependencies of a task. Raises ConfigurationError for a function that can be no stage."""
    name, function = dependencies.name, dependencies.function
    other = _declared.get(name)
    if other is not None and _place_of(other) != _place_of(dependencies):  # the same: its module was loaded again
        raise ConfigurationError(
            "a stage's name must be its own, since its results are recorded and found under it; "
            f"{_place_of(dependencies)} declares the stage {name!r}, which {_place_of(other)} declares too: give one "
            "of them another name"
        )
    if next(iter(dependencies.signature.parameters), None) != "parameters":
        raise ConfigurationError(
            f"a stage's first argument must be `parameters`, the model of what it reads; {name} has "
            f"{dependencies.signature}"
        )
    if function.__module__ == "__main__":
        raise ConfigurationError(
            f"a stage must be defined in a module that others can import, to know its code; {name} is defined in "
            "the script that was started: move it to a module of its own"
        )
    _declared[name] = dependencies
    _unread.append(dependencies)


def _place_of(dependencies: Dependencies) -> str:
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
