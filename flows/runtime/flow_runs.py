"""Flows that need no Prefect where everything that they would compute is recorded.

    @flow_run("comparison", "{experiment.ablation.name}")
    def comparison(experiment: Experiment) -> AblationResult: ...

    comparison(experiment)                as a flow run of Prefect, whose server is running
    comparison.found_or_run(experiment)   from the store if every stage is recorded; else it starts the server first

Importing Prefect takes two seconds and starting its server ten, so what is recorded is answered without either.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from rich.console import Console

from flows.needs.readiness import require_machine
from flows.prepare import require_model
from flows.runtime.server import ensure_server, require_server
from tasks.stage import NotRecorded, recorded_only
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.store.default import nothing_is_stored

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class FlowRun(Generic[Arguments, Result]):
    """A function that runs as a flow run of Prefect: see `flow_run`."""

    def __init__(
        self,
        function: Callable[Arguments, Result],
        name: str,
        run_name: str | Callable[[], str],
        tags: Sequence[str] = (),
    ) -> None:
        self._function, self._name, self._run_name, self._tags = function, name, run_name, tags
        functools.update_wrapper(self, function)

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """What the function returns, as a flow run. Prefect's settings must be in the environment."""
        from prefect import flow, tags

        from flows.runtime.reported_states import report_lasting_states

        report_lasting_states()
        given = inspect.signature(self._function).bind(*args, **kwargs).arguments
        decorate = flow(name=self._name, flow_run_name=self._run_name, validate_parameters=False, persist_result=False)
        with tags(*self._tags, *tags_of(given)):
            return decorate(self._function)(*args, **kwargs)

    def found_or_run(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """What the function returns: from the store if all its stages are recorded, else from a flow run.

        What the model's files or this machine show to be impossible is refused before libraries are loaded and the
        server is started. Raises ConfigurationError for that, and TurnwiseError where Prefect's server is lost on the
        way.
        """
        given = inspect.signature(self._function).bind(*args, **kwargs).arguments
        refusal = None
        if isinstance(experiment := given.get("experiment"), Experiment):
            require_model(experiment, thoroughly=False)
            try:
                require_machine(experiment, given.get("processes"))
            except ConfigurationError as error:
                if nothing_is_stored():
                    raise
                refusal = error
        try:
            with recorded_only(), _warnings_of_the_finished():
                return self._function(*args, **kwargs)
        except NotRecorded:
            if refusal is not None:
                raise refusal from None
            ready_for_prefect(Console(quiet=bool(given.get("quiet"))))
        try:
            return self(*args, **kwargs)
        except Exception as error:
            require_server(error)
            raise


def flow_run(
    name: str, run_name: str | Callable[[], str], tags: Sequence[str] = ()
) -> Callable[[Callable[Arguments, Result]], FlowRun[Arguments, Result]]:
    """Turn a function into one that runs as a flow run, with these names in Prefect's UI.

    A `run_name` may hold the function's parameters in braces. The flow run has the `tags` that are given, those that
    its parameters say (`tags_of`) and those of the flow run that it is a part of.
    """

    def decorate(function: Callable[Arguments, Result]) -> FlowRun[Arguments, Result]:
        return FlowRun(function, name, run_name, tags)

    return decorate


def in_flow_run() -> bool:
    """Whether this code runs as a part of a flow run of Prefect."""
    context = sys.modules.get("prefect.context")
    return context is not None and context.FlowRunContext.get() is not None


def current_flow_run() -> str | None:
    """The id of the flow run that this code is a part of; None where it is a part of none."""
    if not in_flow_run():
        return None
    from prefect import runtime

    return str(runtime.flow_run.id)


@contextmanager
def part_of(flow_run: str | None) -> Iterator[None]:
    """Have the flow runs of the block listed as parts of one that another process makes; None: of none.

    Prefect's server must know that flow run.
    """
    if flow_run is None:
        yield
        return
    from prefect.context import FlowRunContext, SyncClientContext
    from prefect.results import ResultStore
    from prefect.task_runners import ThreadPoolTaskRunner

    with (
        SyncClientContext.get_or_create() as opened,
        FlowRunContext(
            flow_run=opened.client.read_flow_run(UUID(flow_run)),
            client=opened.client,
            task_runner=ThreadPoolTaskRunner(),
            result_store=ResultStore(),
            detached=True,
        ),
    ):
        yield


def tags_of(parameters: Mapping[str, Any]) -> list[str]:
    """The tags of a flow run, by which Prefect's pages and automations find it: what it is of, where it says so.

    From the function's parameters: `ablation NAME` and `world NAME` of an `experiment`, and `stage`, `variant` and
    `seed` as they are.
    """
    found = []
    if isinstance(experiment := parameters.get("experiment"), Experiment):
        found += [f"ablation {experiment.ablation.name}", f"world {experiment.world.name}"]
    named = (name for name in ("stage", "variant", "seed") if isinstance(parameters.get(name), str | int))
    return [*found, *(f"{name} {parameters[name]}" for name in named)]


def ready_for_prefect(console: Console) -> None:
    """Start or find a Prefect server, import Prefect, and close the runs of killed processes.

    The server's settings must be in the environment before Prefect is imported; that import takes seconds too, so it
    is covered by the same status line. In a log, where no status line is shown, a line says what is waited for.
    """
    if not console.is_terminal:
        said = "starting the local Prefect server and loading the libraries (half a minute the first time) ..."
        console.print(said, highlight=False, soft_wrap=True)
    with console.status("starting the local Prefect server (10 s the first time)") as status:
        ensure_server()
        status.update("loading the libraries")
        from flows.runtime.housekeeping import close_abandoned_runs, mark_flow_runs

        mark_flow_runs()
        close_abandoned_runs()


_held: ContextVar[list[logging.LogRecord] | None] = ContextVar("held", default=None)
"""What this thread has logged within `_warnings_of_the_finished`; None outside of it, and in every other thread."""


class _HeldBack(logging.Filter):
    """Keeps from a handler what is held back, and passes what other threads log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is not held back."""
        held = _held.get()
        if held is not None and record not in held[-1:]:  # several handlers are given the same record in turn
            held.append(record)
        return held is None


@contextmanager
def _warnings_of_the_finished() -> Iterator[None]:
    """Log what the block logs when it ends, or nothing where it ends in NotRecorded: the flow run will log it again.

    What other threads log meanwhile is logged at once.
    """
    root, held_back = logging.getLogger(), _HeldBack()
    held: list[logging.LogRecord] = []
    handlers = list(root.handlers) or [last for last in [logging.lastResort] if last is not None]
    for handler in handlers:
        handler.addFilter(held_back)
    token = _held.set(held)
    try:
        yield
    except NotRecorded:
        held.clear()
        raise
    finally:
        _held.reset(token)
        for handler in handlers:
            handler.removeFilter(held_back)
        for record in held:
            root.handle(record)
