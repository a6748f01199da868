"""The bundled server's background work: done in full, by a worker that rests between its works.

What is tested imports all of Prefect's server, so each test imports it: every test process imports this file.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest


def test_prefects_server_takes_the_worker_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    from docket import Docket
    from docket.dependencies import current_worker
    from prefect.server.api import background_workers

    from flows.runtime.background_work import UnhurriedWorker, rest_between_works

    monkeypatch.setattr(background_workers, "Worker", background_workers.Worker)  # put back after the test
    rest_between_works()

    async def started() -> object:
        async with Docket("test", url="memory://") as docket, background_workers.background_worker(docket):
            return current_worker.get()

    assert isinstance(asyncio.run(started()), UnhurriedWorker)


def test_all_work_is_done_whenever_it_comes_and_none_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is due at once takes longer than the worker looks for work; other work is due while it rests."""
    from docket import Docket

    from flows.runtime import background_work
    from flows.runtime.background_work import UnhurriedWorker

    monkeypatch.setattr(background_work, "SECONDS_AT_WORK", 0.5)
    monkeypatch.setattr(background_work, "SECONDS_AT_REST", 0.5)
    done: list[str] = []
    all_done = asyncio.Event()

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        done.append(name)
        if len(done) == 2:
            all_done.set()

    async def works() -> None:
        async with Docket("test", url="memory://") as docket, UnhurriedWorker(docket) as worker:
            docket.register(work)
            await docket.add(work)("long", 1.0)
            await docket.add(work, when=datetime.now(UTC) + timedelta(seconds=1.7))("later", 0.0)
            working = asyncio.create_task(worker.run_forever())
            await asyncio.wait_for(all_done.wait(), timeout=60)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

    asyncio.run(works())
    assert done == ["long", "later"]
