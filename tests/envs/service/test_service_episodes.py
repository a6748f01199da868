"""Leases, step numbers, limits and reasons, asked of the application as a client asks it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, Brittle, Clock, running

from envs.service.application import create_application
from envs.service.generator_state import GeneratorState
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.reasons import LOST, STATUS, Reason
from turnwise import seeding

LIMITS = ServiceLimits(episodes=8, lease_seconds=60, call_seconds=20, body_bytes=10_000)
ORACLE = {"baseline": "oracle", "remaining": {"turns": 1, "actions_per_turn": 1, "actions": 1}}


class Asking:
    """A client that says what it wants in few words."""

    def __init__(self, http: Any) -> None:
        self.http = http
        self.world = http.get("/v2/worlds").json()["worlds"][0]["id"]
        self._created = 0

    def creation(self, task: int = 0, key: str | None = None) -> dict[str, Any]:
        self._created += 1
        about = {"world": "brittle", "id": f"brittle/test/{task}", "split": "test", "seed": task}
        return {"world": self.world, "task": about, "seed": 1, "key": key or f"key-{self._created}"}

    def create(self, task: int = 0) -> str:
        episode: str = self.http.post("/v2/episodes", json=self.creation(task)).json()["episode"]
        return episode

    def opened(self, task: int = 0) -> str:
        episode = self.create(task)
        assert self.reset(episode).json()["observation"]["text"] == "ready on 1 thread"
        return episode

    def reset(self, episode: str) -> httpx.Response:
        return self.http.post(f"/v2/episodes/{episode}/reset")

    def step(self, episode: str, number: int, action: str = "count") -> httpx.Response:
        return self.http.post(f"/v2/episodes/{episode}/step", json={"number": number, "action": action})

    def standing(self, episode: str) -> httpx.Response:
        return self.http.get(f"/v2/episodes/{episode}/observation")

    def decide(self, episode: str, **change: Any) -> httpx.Response:
        return self.http.post(f"/v2/episodes/{episode}/decide", json={**ORACLE, **change})

    def close(self, episode: str) -> httpx.Response:
        return self.http.delete(f"/v2/episodes/{episode}")

    def metric(self, line: str) -> float:
        """The sum over worlds of what the metrics say, 0 where they say nothing."""
        lines = [each for each in self.http.get("/v2/metrics").text.splitlines() if each.startswith(line)]
        return sum(float(each.rpartition(" ")[2]) for each in lines)


@contextmanager
def application(clock: Clock | None = None, **options: Any) -> Iterator[Asking]:
    app = create_application([Offer(BRITTLE)], **{"limits": LIMITS, "clock": clock or Clock(), **options})
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as http:
        yield Asking(http)


@pytest.fixture
def asking() -> Iterator[Asking]:
    with application() as found:
        yield found


def reason(response: httpx.Response) -> Reason:
    """The reason of an error, whose status must be the one that goes with it."""
    found = Reason(response.json()["error"]["code"])
    assert response.status_code == STATUS[found]
    assert response.json()["error"]["message"]
    return found


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    said = response.json()
    found: str = (said.get("step") or said)["observation"]["text"]
    return found


# Steps


def test_an_episode_is_created_reset_stepped_and_closed(asking: Asking) -> None:
    episode = asking.opened(5)
    assert [text(asking.step(episode, number)) for number in (1, 2, 3)] == [f"{n} on 1 thread" for n in (1, 2, 3)]
    assert asking.step(episode, 4).json() == {
        "number": 4,
        "step": {
            "observation": {"text": "4 on 1 thread", "state": "4"},
            "rewards": {"counted": 1.0},
            "terminated": False,
            "truncated": False,
            "valid": True,
            "effective": True,
            "success": False,
            "metrics": {},
        },
    }
    assert asking.close(episode).json() == {"closed": True}


def test_a_repeated_step_is_answered_from_the_record_and_not_played_twice(asking: Asking) -> None:
    episode = asking.opened()
    first = asking.step(episode, 1)
    assert [asking.step(episode, 1).content for _ in range(3)] == [first.content] * 3
    assert text(asking.step(episode, 2)) == "2 on 1 thread"
    assert asking.metric("turnwise_service_steps_total") == 2
    assert asking.metric("turnwise_service_steps_repeated_total") == 3


@pytest.mark.parametrize(("number", "action"), [(0, "count"), (1, "count"), (2, "pid"), (4, "count"), (-3, "count")])
def test_a_step_out_of_order_is_refused_and_changes_nothing(asking: Asking, number: int, action: str) -> None:
    episode = asking.opened()
    asking.step(episode, 1)
    asking.step(episode, 2)
    wanted = Reason.INVALID_REQUEST if number < 1 else Reason.STEP_OUT_OF_ORDER
    assert reason(asking.step(episode, number, action)) is wanted
    assert text(asking.step(episode, 3)) == "3 on 1 thread"


def test_a_reset_is_repeated_until_the_first_step_and_needed_before_it(asking: Asking) -> None:
    episode = asking.create()
    assert reason(asking.step(episode, 1)) is Reason.RESET_OUT_OF_ORDER
    assert reason(asking.standing(episode)) is Reason.RESET_OUT_OF_ORDER
    assert reason(asking.decide(episode)) is Reason.RESET_OUT_OF_ORDER
    assert asking.reset(episode).content == asking.reset(episode).content
    asking.step(episode, 1)
    assert reason(asking.reset(episode)) is Reason.RESET_OUT_OF_ORDER
    assert text(asking.step(episode, 2)) == "2 on 1 thread"


def test_a_creation_that_is_sent_again_makes_no_second_episode(asking: Asking) -> None:
    creation = asking.creation(3, key="mine")
    first = asking.http.post("/v2/episodes", json=creation)
    assert first.status_code == 200
    assert asking.http.post("/v2/episodes", json=creation).json() == first.json()
    assert asking.metric("turnwise_service_episodes_open") == 1
    assert reason(asking.http.post("/v2/episodes", json=asking.creation(4, key="mine"))) is Reason.KEY_REUSED


def test_the_observation_says_where_an_episode_stands(asking: Asking) -> None:
    episode = asking.opened()
    assert asking.standing(episode).json()["number"] == 0
    assert text(asking.standing(episode)) == "ready on 1 thread"
    asking.step(episode, 1)
    assert text(asking.standing(episode)) == "1 on 1 thread"
    assert asking.standing(episode).json()["number"] == 1


def test_a_baseline_decides_and_changes_nothing(asking: Asking) -> None:
    episode = asking.opened()
    assert asking.decide(episode).json() == {"decision": {"thought": "count", "actions": ["count"]}, "generator": None}
    state = GeneratorState.of(seeding.generator(0, "test"))
    drawn = asking.decide(episode, baseline="random", generator=state.model_dump())
    assert asking.decide(episode, baseline="random", generator=state.model_dump()).json() == drawn.json()
    again = asking.decide(episode, baseline="random", generator=drawn.json()["generator"])
    here = seeding.generator(0, "test")
    assert [each.json()["decision"]["actions"] for each in (drawn, again)] == [[f"{here.integers(1000)}"] for _ in "ab"]
    assert reason(asking.decide(episode, baseline="expert", generator=state.model_dump())) is Reason.INVALID_REQUEST
    assert reason(asking.decide(episode, baseline="random")) is Reason.INVALID_REQUEST
    assert text(asking.step(episode, 1)) == "1 on 1 thread"


def test_what_a_baseline_said_is_not_told_after_the_next_step() -> None:
    with TestClient(create_application([Offer("frozen_lake")]), "http://localhost") as http:
        asking = Asking(http)
        (task,) = http.get(f"/v2/worlds/{asking.world}/tasks?split=test&count=1").json()["tasks"]
        creation = {"world": asking.world, "task": task, "seed": 0, "key": "k"}
        episode = http.post("/v2/episodes", json=creation).json()["episode"]
        asking.reset(episode)
        before = asking.decide(episode).json()["decision"]
        asking.step(episode, 1, before["actions"][0])
        assert asking.decide(episode).json()["decision"] != before


# Leases and limits


@pytest.mark.parametrize("call", ["reset", "step", "repeat", "decide", "standing", "create"])
def test_every_call_renews_the_lease(call: str) -> None:
    clock = Clock()
    with application(clock) as asking:
        creation = asking.creation(0, key="again")
        episode = asking.http.post("/v2/episodes", json=creation).json()["episode"]
        if call != "reset" and call != "create":
            asking.reset(episode)
        if call == "repeat":
            asking.step(episode, 1)
        calls = {
            "reset": lambda: asking.reset(episode),
            "step": lambda: asking.step(episode, 1),
            "repeat": lambda: asking.step(episode, 1),
            "decide": lambda: asking.decide(episode),
            "standing": lambda: asking.standing(episode),
            "create": lambda: asking.http.post("/v2/episodes", json=creation),
        }
        clock.now += 59
        assert calls[call]().status_code == 200
        clock.now += 59
        assert reap(asking) == 0
        clock.now += 1
        assert reap(asking) == 1


def reap(asking: Asking) -> int:
    """The reaper's work, on the server's loop."""
    found: int = asking.http.portal.call(_reap, asking.http.app)
    return found


async def _reap(app: Any) -> int:
    found: int = app.state.service.episodes.reap()
    return found


def test_an_abandoned_episode_is_freed_and_its_environment_closed() -> None:
    clock = Clock()
    Brittle.closed.clear()
    with application(clock) as asking:
        abandoned, used = asking.opened(1), asking.opened(2)
        clock.now += 59
        asking.step(used, 1)
        clock.now += 30
        assert reap(asking) == 1
        assert reason(asking.step(abandoned, 1)) is Reason.UNKNOWN_EPISODE
        assert text(asking.step(used, 2)) == "2 on 1 thread"
        assert asking.metric('turnwise_service_episodes_freed_total{how="expired"') == 1
        assert asking.metric("turnwise_service_episodes_open") == 1
    assert Brittle.closed == ["brittle/test/1", "brittle/test/2"]  # the other with the server


def test_the_server_looks_for_abandoned_episodes_by_itself() -> None:
    clock = Clock()
    with application(clock, limits=replace(LIMITS, lease_seconds=0.04)) as asking:
        asking.opened()
        clock.now += 1
        while asking.metric("turnwise_service_episodes_open"):
            time.sleep(0.01)
        assert asking.metric('turnwise_service_episodes_freed_total{how="expired"') == 1


def test_one_more_than_the_limit_is_refused_until_a_place_is_free() -> None:
    clock = Clock()
    with application(clock) as asking:
        episodes = [asking.create(number) for number in range(8)]
        full = asking.http.post("/v2/episodes", json=asking.creation())
        assert reason(full) is Reason.TOO_MANY_EPISODES
        assert full.headers["retry-after"] == "1"
        asking.close(episodes[3])
        asking.create()
        assert reason(asking.http.post("/v2/episodes", json=asking.creation())) is Reason.TOO_MANY_EPISODES
        clock.now += 60  # all are abandoned: who asks for a place need not wait for the reaper
        asking.create()
        assert asking.metric("turnwise_service_episodes_open") == 1


def test_a_close_is_answered_however_often_it_is_sent(asking: Asking) -> None:
    Brittle.closed.clear()
    episode = asking.opened(7)
    assert [asking.close(episode).json()["closed"] for _ in range(3)] == [True, False, False]
    assert reason(asking.step(episode, 1)) is Reason.UNKNOWN_EPISODE
    assert asking.metric("turnwise_service_episodes_open") == 0


# Losses


@pytest.mark.parametrize(("action", "kind"), [("raise", "ConnectionError: no route"), ("exit", "SystemExit: 3")])
def test_a_world_that_raises_loses_its_episode_and_no_other(asking: Asking, action: str, kind: str) -> None:
    Brittle.closed.clear()
    lost, other = asking.opened(1), asking.opened(2)
    failed = asking.step(lost, 1, action)
    assert reason(failed) is Reason.WORLD_FAILED and kind in failed.text
    for again in (asking.step(lost, 1, action), asking.step(lost, 1), asking.reset(lost), asking.decide(lost)):
        assert again.json() == failed.json()
    assert asking.metric("turnwise_service_episodes_open") == 1  # it holds no place
    assert text(asking.step(other, 1)) == "1 on 1 thread"
    assert asking.close(lost).json() == {"closed": False}
    assert reason(asking.step(lost, 1)) is Reason.UNKNOWN_EPISODE
    assert Brittle.closed == ["brittle/test/1"]


def test_a_reward_that_is_no_number_breaks_the_contract(asking: Asking) -> None:
    refused = asking.step(asking.opened(1), 1, "infinite")
    assert reason(refused) is Reason.CONTRACT_BROKEN
    assert "reward counted of brittle/test/1 must be a finite number; found inf" in refused.text


def test_texts_that_json_cannot_hold_are_told_as_the_agent_stores_them(asking: Asking) -> None:
    step = asking.step(asking.opened(), 1, "surrogate").json()["step"]
    assert step["observation"] == {"text": "page ?", "state": "?"}


def test_a_world_that_hangs_is_lost_when_its_time_is_over() -> None:
    Brittle.go_on.clear()
    with application(limits=replace(LIMITS, call_seconds=1.5)) as asking:
        episode = asking.opened(1)
        assert reason(asking.step(episode, 1, "hang")) is Reason.WORLD_HUNG
        assert reason(asking.step(episode, 1, "hang")) is Reason.WORLD_HUNG
        assert asking.metric("turnwise_service_episodes_open") == 0
        assert asking.metric('turnwise_service_episodes_freed_total{how="world_hung"') == 1
        Brittle.go_on.set()


def test_a_lost_episode_is_forgotten_with_its_lease() -> None:
    clock = Clock()
    with application(clock) as asking:
        episode = asking.opened()
        asking.step(episode, 1, "raise")
        clock.now += 60
        assert reap(asking) == 0
        assert reason(asking.step(episode, 1)) is Reason.UNKNOWN_EPISODE


def test_a_task_of_another_world_is_refused_and_holds_no_place(asking: Asking) -> None:
    creation = asking.creation()
    creation["task"]["id"] = "elsewhere/1"
    refused = asking.http.post("/v2/episodes", json=creation)
    assert reason(refused) is Reason.TASK_REFUSED and "elsewhere/1" in refused.text
    assert asking.metric("turnwise_service_episodes_open") == 0
    creation["task"]["id"] = "brittle/1"
    assert asking.http.post("/v2/episodes", json=creation).status_code == 200  # the key is free again


# Several at once


def wait_until_busy(app: Any, episode: str) -> None:
    while not app.state.service.episodes._open[episode].lock.locked():
        time.sleep(0.001)


def test_the_same_step_sent_many_times_at_once_is_played_once() -> None:
    Brittle.go_on.clear()
    app = create_application([Offer(BRITTLE)], limits=LIMITS)
    with running(app) as url, httpx.Client(base_url=url, timeout=60) as http:
        asking = Asking(http)
        episode = asking.opened()
        answers: list[bytes] = []

        def send(number: int, action: str) -> None:
            answers.append(asking.step(episode, number, action).content)

        threads = [threading.Thread(target=send, args=(1, "hang")) for _ in range(6)]
        for thread in threads:
            thread.start()
        wait_until_busy(app, episode)
        Brittle.go_on.set()
        for thread in threads:
            thread.join()
        assert len(answers) == 6 and len(set(answers)) == 1
        assert asking.metric("turnwise_service_steps_total") == 1
        assert asking.metric("turnwise_service_steps_repeated_total") == 5


def test_an_episode_that_is_busy_is_not_abandoned() -> None:
    Brittle.go_on.clear()
    clock = Clock()
    with application(clock) as asking:
        episode = asking.opened()
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(asking.step(episode, 1, "hang")))
        thread.start()
        wait_until_busy(asking.http.app, episode)
        clock.now += 1000
        freed = reap(asking)
        Brittle.go_on.set()
        thread.join()
        assert freed == 0
        assert answers[0].status_code == 200
        assert reap(asking) == 0  # its end renewed the lease
        clock.now += 60
        assert reap(asking) == 1


def test_batches_say_of_each_entry_what_came_of_it(asking: Asking) -> None:
    creations = [asking.creation(number) for number in range(3)]
    creations[1]["task"]["id"] = "elsewhere"
    created = asking.http.post("/v2/batch/create", json={"episodes": creations}).json()["outcomes"]
    assert [outcome["error"] and outcome["error"]["code"] for outcome in created] == [None, "task_refused", None]
    first, second = created[0]["reply"]["episode"], created[2]["reply"]["episode"]
    seen = asking.http.post("/v2/batch/reset", json={"episodes": [second, "nobody", first]}).json()["outcomes"]
    assert [bool(outcome["reply"]) for outcome in seen] == [True, False, True]
    assert seen[1]["error"]["code"] == "unknown_episode"
    orders = [(first, 1, "count"), (second, 1, "raise"), (first, 2, "count"), (first, 2, "count"), (first, 9, "count")]
    steps = [{"episode": episode, "number": number, "action": action} for episode, number, action in orders]
    played = asking.http.post("/v2/batch/step", json={"steps": steps}).json()["outcomes"]
    assert [each["reply"] and each["reply"]["step"]["observation"]["state"] for each in played] == [
        "1",
        None,
        "2",
        "2",
        None,
    ]
    assert [each["error"]["code"] for each in (played[1], played[4])] == ["world_failed", "step_out_of_order"]
    closed = asking.http.post("/v2/batch/close", json={"episodes": [first, second]}).json()["outcomes"]
    assert [outcome["reply"]["closed"] for outcome in closed] == [True, False]


def test_every_reason_of_a_lost_episode_is_one_of_the_server() -> None:
    assert all(STATUS[each] >= 500 for each in LOST)
    assert set(STATUS) == set(Reason)
