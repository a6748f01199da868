"""Tasks are listed in pages, and to list a world's many tasks stops nobody else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from service_samples import BRITTLE, ENDLESS, Brittle, Counting, Endless, send_over, serving

from envs.service import RemoteWorld
from envs.service.client import ServiceFault
from envs.service.offers import Listing, Offer
from envs.service.reasons import Reason, Refusal
from envs.service.schema import MOST_AT_ONCE, MOST_TASKS
from turnwise.world import Task


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Offer(ENDLESS), Offer(BRITTLE)) as address:
        yield address


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[int]]:
    Endless.listed.clear()
    Endless.go_on.set()
    yield Endless.listed
    Endless.go_on.set()


def endless(url: str) -> RemoteWorld:
    return RemoteWorld(url=url, world=ENDLESS, version="3")


def ask(url: str, **query: int | str) -> httpx.Response:
    return httpx.get(f"{url}/v2/worlds/{endless(url).served}/tasks", params={"split": "test", **query}, timeout=60)


def test_a_listing_that_takes_long_stops_no_other_world(url: str, heard: list[int]) -> None:
    Endless.go_on.clear()
    many = threading.Thread(target=ask, args=(url,), kwargs={"count": 100_000, "limit": 10, "split": "validation"})
    many.start()
    while not heard:
        time.sleep(0.01)
    other = RemoteWorld(url=url, world=BRITTLE, version="3")
    assert len(other.tasks("test", 5)) == 5
    assert other.limits_of(other.tasks("test", 2)[1]).turns == 2
    assert many.is_alive()
    Endless.go_on.set()
    many.join()


def test_the_client_pages_through_by_itself_and_the_world_lists_once(url: str, heard: list[int]) -> None:
    count = 2 * MOST_AT_ONCE + 100
    tasks = endless(url).tasks("train", count)
    assert tasks == Endless().tasks("train", count)
    assert heard == [count, count]  # the server once, and this test
    assert endless(url).tasks("train", 3) == tasks[:3]
    assert endless(url).tasks("train", 0) == []
    assert len(heard) == 2


def test_a_page_has_a_largest_size_and_so_has_a_split(url: str, heard: list[int]) -> None:
    def told(**query: int | str) -> tuple[int, str, str]:
        refused = ask(url, **query)
        return refused.status_code, refused.json()["error"]["code"], refused.json()["error"]["message"]

    # As a client of before asks, which knows no pages.
    status, code, message = told(count=MOST_AT_ONCE + 1)
    assert (status, code) == (422, "invalid_request")
    assert message.startswith(
        f"a page holds at most {MOST_AT_ONCE} tasks; found count {MOST_AT_ONCE + 1} without a lim"
    )
    assert told(count=1_000_000)[:2] == (422, "invalid_request")
    assert told(count=5, limit=MOST_AT_ONCE + 1)[:2] == told(count=5, limit=0)[:2] == (422, "invalid_request")
    assert told(count=5, offset=-1)[:2] == (422, "invalid_request")
    assert told(count=MOST_TASKS + 1, limit=1) == (
        422,
        "task_refused",
        f"count must be at most {MOST_TASKS}; found {MOST_TASKS + 1}",
    )
    assert heard == []  # nothing was listed for any of them
    with pytest.raises(ValueError, match=f"count must be at most {MOST_TASKS}; found 1000000"):
        endless(url).tasks("test", 1_000_000)
    assert len(ask(url, count=MOST_AT_ONCE).json()["tasks"]) == MOST_AT_ONCE
    assert [task["seed"] for task in ask(url, count=7, offset=4, limit=9).json()["tasks"]] == [4, 5, 6]
    assert ask(url, count=7, offset=7, limit=9).json() == {"tasks": []}


def test_a_server_that_knows_no_pages_is_not_believed(url: str) -> None:
    world = endless(url)
    everything = httpx.Response(200, json={"tasks": [vars(task) for task in Brittle().tasks("test", 100)]})
    with pytest.raises(ServiceFault, match="a page of tasks must have 50; found 100"):
        send_over(world, url, Counting(lambda: everything)).tasks("test", 50)


def test_a_listing_that_takes_too_long_is_told_so_and_kept_for_who_asks_again(heard: list[int]) -> None:
    async def wait() -> list[Task]:
        listing = Listing(Endless(), seconds=0.2)
        Endless.go_on.clear()
        for _ in range(2):  # the second waits for the first, which has not ended
            with pytest.raises(Refusal, match=r"the world must answer within 0\.2 s") as refusal:
                await listing.page("test", 9, 0, 9)
            assert refusal.value.reason is Reason.WORLD_HUNG
        assert heard == [9]
        Endless.go_on.set()
        while not listing._longest:
            await asyncio.sleep(0.01)
        return await listing.page("test", 9, 0, 9)

    assert len(asyncio.run(wait())) == 9 and heard == [9]
