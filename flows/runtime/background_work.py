"""The bundled server's background work: it removes old runs, and the logs of runs that a user deletes.

Prefect's own worker asks its queue for such work twenty times a second, which takes 1 % of a core as long as the server
runs, for work that comes once an hour. This one looks three times a minute, and stays until what it has begun is done.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from docket import Worker
from prefect.server.api import background_workers

SECONDS_AT_WORK = 2.0
"""How long it looks for work: long enough to find what is due, and what that asks for in turn."""
SECONDS_AT_REST = 18.0


class UnhurriedWorker(Worker):
    """Prefect's worker, at rest for most of the time."""

    async def run_forever(self) -> None:
        """Do what is due, three times a minute until cancelled. Work that has begun is never interrupted."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(super().run_forever(), SECONDS_AT_WORK)
            await asyncio.sleep(SECONDS_AT_REST)


def rest_between_works() -> None:
    """Have servers that are started from here on in this process use this worker. Prefect has no setting for it."""
    background_workers.Worker = UnhurriedWorker  # type: ignore[misc]
