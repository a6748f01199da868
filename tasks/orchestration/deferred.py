"""Prefect's decorators `task` and `flow`, which import Prefect when what they decorate is first called.

    @task(name="rollout", task_run_name="{label}: rollout", retries=1)
    @depends_on(...)
    def rollout(parameters: RolloutParameters, *, policy: Reference, ...) -> Reference: ...

A plan asks the same functions for their names and cache keys, and what is recorded is shown, without Prefect, whose
import takes 1.5 s of processor time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from prefect import Flow, Task

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def task(**options: Any) -> Callable[[Callable[Arguments, Result]], Task[Arguments, Result]]:
    """Prefect's `@task` with the options that all stages share, `BY_CONTENT_OPTIONS`, and these."""

    def make(function: Callable[..., Any]) -> Any:
        import prefect

        from tasks.orchestration.by_content import BY_CONTENT_OPTIONS

        return prefect.task(**{**BY_CONTENT_OPTIONS, **options})(function)

    def decorate(function: Callable[Arguments, Result]) -> Task[Arguments, Result]:
        return cast("Task[Arguments, Result]", _Deferred(function, make))

    return decorate


def flow(**options: Any) -> Callable[[Callable[Arguments, Result]], Flow[Arguments, Result]]:
    """Prefect's `@flow` with these options, whose result is no input of what is called after it.

    Prefect takes all that a flow returns for made by it, also what it was given and what is shared with other runs: its
    graph then had edges between runs that have nothing of each other. And a task run with a flow run among its inputs
    leaves the page's list of task runs empty: github.com/PrefectHQ/prefect/issues/18680.
    """

    def make(function: Callable[..., Any]) -> Any:
        import prefect
        from prefect.utilities.annotations import quote

        @functools.wraps(function)
        def quoted(*args: Any, **kwargs: Any) -> Any:
            return quote(function(*args, **kwargs))  # Prefect does not look into it

        return prefect.flow(**options)(quoted)

    def decorate(function: Callable[Arguments, Result]) -> Flow[Arguments, Result]:
        return cast("Flow[Arguments, Result]", _DeferredFlow(function, make))

    return decorate


class _Deferred:
    """A task or a flow of Prefect, which is made from its function `fn` when anything else of it is asked for."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        functools.update_wrapper(self, function)
        self.fn, self._make = function, make

    @functools.cached_property
    def _prefect_object(self) -> Any:
        return self._make(self.fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._prefect_object(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prefect_object, name)


class _DeferredFlow(_Deferred):
    """A flow, which returns what its function returns."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs).unquote()
