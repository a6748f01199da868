"""Around a flow run of Prefect: its server and imports made ready, the tags by which it is found, and its loss told.

The flows are plain functions under Prefect's `@flow`. Importing Prefect takes two seconds, and running a flow needs its
server, which takes ten to start. What is recorded as a whole is answered without either (`flows.plan`), so a module of
flows is imported where one is called.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rich.console import Console

from flows.runtime.server import connect_directly, ensure_server, require_server
from turnwise.experiment import Experiment
from turnwise.project import one_project
from turnwise.records.record import tracking_uri
from turnwise.store.sqlite_files import sqlite_file
from turnwise.tracking.ownership import close_abandoned
from turnwise.training_runs.readiness import require_machine, require_model

if TYPE_CHECKING:
    from prefect import Flow

RUN_LOG = "turnwise.run"
"""Whose lines `flow_run_log` adds, as Prefect's page names it."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run_flow(flow: Flow[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """What a flow returns, run under the tags that its parameters say (`tags_of`), with those of the flow around it.

    Raises TurnwiseError where Prefect's server is lost on the way.
    """
    from prefect import tags
    from prefect.context import SyncClientContext

    parameters = inspect.signature(flow.fn).bind(*args, **kwargs).arguments
    # A client of the server that the settings name now: the one that is open already may have another server. It is
    # made outside of this context, since one with settings of its own would not be found by Prefect's tasks.
    client: AbstractContextManager[object]
    client = nullcontext() if in_flow_run() else contextvars.Context().run(SyncClientContext)
    try:
        with one_project(), client, tags(*tags_of(parameters)):
            return flow(*args, **kwargs)
    except Exception as error:
        require_server(error)
        raise


def untagged_tasks(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function of a flow, whose tasks do not have the tags of the flow run.

    For each set of tags Prefect starts a thread, which asks its server for a slot before each of the tasks.
    """

    @functools.wraps(function)
    def untagged(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        from prefect.context import TagsContext

        with TagsContext(current_tags=set()):
            return function(*args, **kwargs)

    return untagged


def in_flow_run() -> bool:
    """Whether this code runs as a part of a flow run of Prefect."""
    context = sys.modules.get("prefect.context")
    return context is not None and context.FlowRunContext.get() is not None


def flow_run_log() -> Callable[[str], None]:
    """Adds a line to the log of the flow run that this code is a part of, from any thread, and to no other log.

    Outside of a flow run it does nothing.
    """
    if not in_flow_run():
        return lambda line: None
    from prefect.logging.handlers import APILogHandler

    handler = APILogHandler()  # alone, and by no logger: the terminal has bars and lines of its own
    context = contextvars.copy_context()  # by which the handler knows the flow run

    def add(line: str) -> None:
        record = logging.LogRecord(RUN_LOG, logging.INFO, __file__, 0, "%s", (line,), None)
        context.copy().run(handler.handle, record)

    return add


def tags_of(parameters: Mapping[str, Any]) -> list[str]:
    """The tags of a flow run, by which Prefect's pages and automations find it: what it is of, where it says so.

    From the flow's parameters: `ablation NAME` and `world NAME` of an `experiment`, and `stage`, `variant` and `seed`
    as they are.
    """
    tags = []
    if isinstance(experiment := parameters.get("experiment"), Experiment):
        tags += [f"ablation {experiment.ablation.name}", f"world {experiment.world.name}"]
    names = (name for name in ("stage", "variant", "seed") if isinstance(parameters.get(name), str | int))
    return [*tags, *(f"{name} {parameters[name]}" for name in names)]


def ready_to_run(experiment: Experiment, console: Console, processes: int | None = None) -> None:
    """`require_machine_and_model`, then `ready_for_prefect`; also close the MLflow runs of killed processes."""
    require_machine_and_model(experiment, processes)
    uri = tracking_uri(experiment)
    if sqlite_file(uri) is not None:  # a server is asked by what records there; it may be down
        close_abandoned(uri)
    ready_for_prefect(console)


def require_machine_and_model(experiment: Experiment, processes: int | None = None) -> None:
    """Raise ConfigurationError for what the world, the model's files or this machine show to be impossible.

    Before libraries are loaded and the server is started.
    """
    experiment.require_programs()
    require_model(experiment, thoroughly=False)
    require_machine(experiment, processes)


def ready_for_prefect(console: Console) -> None:
    """Start or find a Prefect server, import Prefect, and close the runs of killed processes.

    The server's settings must be in the environment before Prefect is imported; that import takes seconds too, so it
    is covered by the same status line. In a log, where no status line is shown, a line says what is waited for.
    """
    if not console.is_terminal:
        message = "starting the local Prefect server and loading the libraries (half a minute the first time) ..."
        console.print(message, highlight=False, soft_wrap=True)
    with console.status("starting the local Prefect server (10 s the first time)") as status:
        url = ensure_server()
        status.update("loading the libraries")
        from flows.runtime.housekeeping import close_abandoned_runs, mark_flow_runs

        connect_directly(url)
        mark_flow_runs()
        close_abandoned_runs()
