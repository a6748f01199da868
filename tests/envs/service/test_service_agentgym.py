"""Our worlds by AgentGym's protocol: the requests of its seven clients play them, and so does our world `agentgym`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_samples import BRITTLE, Clock, serving

from envs.agentgym import AgentGym
from envs.service.agentgym import AgentGymEnvironments
from envs.service.application import create_application
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from turnwise.world import Remaining, Split, make_world

REMAINING = Remaining(30, 1, 30)
SLIPPERY = Offer("frozen_lake", {"success_rate": 0.5, "turns": 40})


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    app = create_application([SLIPPERY, Offer("search"), Offer(BRITTLE)], clock=Clock())
    with TestClient(app, "http://localhost") as client:
        yield client


def asked(http: TestClient, path: str, **body: Any) -> Any:
    reply = http.post(f"/agentgym/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refusal(http: TestClient, path: str, **body: Any) -> tuple[int, str]:
    reply = http.post(f"/agentgym/{path}", json=body)
    return reply.status_code, reply.json()["error"]["code"]


@pytest.mark.parametrize(
    ("client", "item", "action"),
    [
        ("textcraft", "data_idx", "{}"),
        ("babyai", "data_idx", "{}"),
        ("sciworld", "data_idx", "{}"),
        ("alfworld", "game", "{}"),
        ("webarena", "idx", "Next I play ```{}```"),
    ],
)
def test_every_client_that_reads_objects_plays_the_episode_of_its_item(
    http: TestClient, client: str, item: str, action: str
) -> None:
    world = make_world(SLIPPERY.world, SLIPPERY.parameters)
    base = f"{client}/frozen_lake/validation"
    handle = "env_idx" if client == "webarena" else "id"
    ended = "terminated" if client == "webarena" else "done"
    number = asked(http, f"{base}/create")[handle]
    for place in (2, 0, 2):  # an environment is reset as often as its client likes
        total = 0.0
        with closing(world.make(world.tasks("validation", 3)[place], 0)) as home:
            first = asked(http, f"{base}/reset", **{handle: number, item: place})
            assert first["observation"] == home.reset().text
            assert first["task_description"] == world.instruction
            while True:
                (played, *_) = home.oracle(REMAINING).actions
                step = home.step(played)
                found = asked(http, f"{base}/step", **{handle: number, "action": action.format(played)})
                total += step.rewards.get("goal", 0.0)
                assert (found["observation"], found["reward"]) == (
                    step.observation.text,
                    step.rewards.get("goal", 0.0),
                )
                assert found["score"] == total * (100 if client == "sciworld" else 1)
                assert found[ended] == (step.terminated or step.truncated)
                if step.terminated:
                    break
    assert asked(http, f"{base}/close", **{handle: number}) is True
    assert asked(http, f"{base}/close", **{handle: number}) is False


def test_the_search_client_reads_bare_values_and_writes_tags(http: TestClient) -> None:
    base = "searchqa/search/train"
    world = make_world("search", {})
    number = asked(http, f"{base}/create", id=0)
    assert isinstance(number, int)
    with closing(world.make(world.tasks("train", 2)[1], 0)) as home:
        question = home.reset().text
        assert asked(http, f"{base}/reset", env_idx=number, id=1) == question
        assert http.get(f"/agentgym/{base}/observation", params={"env_idx": number}).json() == question
        searched = home.step("search[Lima]").observation.text
        sent = "<think>so</think> <search>Paris</search> no: <search> Lima </search>"
        assert asked(http, f"{base}/step", env_idx=number, action=sent)["observation"] == searched
        legal = home.step("I do not know").observation.text
        assert asked(http, f"{base}/step", env_idx=number, action="I do not know")["observation"] == legal
    asked(http, f"{base}/close", env_idx=number)


def test_the_shop_client_reads_a_list_and_states(http: TestClient) -> None:
    base = "webshop/frozen_lake/test"
    number = asked(http, f"{base}/create")
    state, nothing = asked(http, f"{base}/reset", env_idx=number, session_id=0)
    assert (state.count("\n"), nothing) == (3, None)
    assert set(asked(http, f"{base}/step", env_idx=number, action="Up")) >= {"state", "reward", "done"}
    asked(http, f"{base}/close", env_idx=number)


def test_another_seed_is_another_episode_of_the_item_and_the_same_one_is_the_same(http: TestClient) -> None:
    base = "textcraft/frozen_lake/train"
    number = asked(http, f"{base}/create", minecraft_dir="agentenv_textcraft/", commands=None, goal=None)["id"]

    def walk(seed: int) -> list[str]:
        seen = [asked(http, f"{base}/reset", id=number, data_idx=0, seed=seed)["observation"]]
        return seen + [asked(http, f"{base}/step", id=number, action="Up")["observation"] for _ in range(4)]

    walks = [walk(seed) for seed in (0, 1, 2, 3, 0)]
    assert walks[0] == walks[4] and len({tuple(each) for each in walks}) > 1
    assert len({each[0] for each in walks}) == 1
    asked(http, f"{base}/close", id=number)


def test_what_cannot_be_done_has_a_status_and_a_reason(http: TestClient) -> None:
    base = f"textcraft/{BRITTLE}/train"
    assert refusal(http, "textcraft/nowhere/train/create") == (404, "unknown_world")
    assert refusal(http, f"gymnasium/{BRITTLE}/train/create") == (422, "invalid_request")
    assert refusal(http, f"textcraft/{BRITTLE}/holdout/create") == (422, "invalid_request")
    assert refusal(http, f"{base}/step", id=10**6, action="count") == (404, "unknown_episode")
    number = asked(http, f"{base}/create")["id"]
    assert refusal(http, f"{base}/step", id=number, action="count") == (409, "reset_out_of_order")
    assert refusal(http, f"{base}/step", id=number) == (422, "invalid_request")
    assert refusal(http, f"{base}/reset", id=number, data_idx=100) == (422, "task_refused")
    assert refusal(http, f"{base}/reset", id=number, data_idx=-1) == (422, "invalid_request")
    assert refusal(http, f"{base}/reset", id=number, goal="a boat") == (422, "invalid_request")
    assert refusal(http, f"textcraft/{BRITTLE}/test/reset", id=number) == (404, "unknown_episode")
    # Before its first reset an environment shows what the world is.
    before = http.get(f"/agentgym/{base}/observation", params={"id": number}).json()
    assert before.startswith("Do as you are told.\ncount, pid")
    assert http.get(f"/agentgym/{base}/").json() == before
    asked(http, f"{base}/reset", id=number)
    # A world that fails is a status that AgentGym's clients raise at, and no reward of 0.
    assert refusal(http, f"{base}/step", id=number, action="raise") == (500, "world_failed")
    assert refusal(http, f"{base}/step", id=number, action="count") == (500, "world_failed")
    assert asked(http, f"{base}/reset", id=number, data_idx=1)["observation"].startswith("ready")
    asked(http, f"{base}/close", id=number)


def test_a_reset_frees_the_episode_before_and_so_does_forgetting_a_number() -> None:
    app = create_application([Offer(BRITTLE)], limits=ServiceLimits(episodes=1))
    app.state.agentgym = AgentGymEnvironments(app.state.service.worlds, app.state.service.episodes, most=1)
    with TestClient(app, "http://localhost") as http:
        base = f"textcraft/{BRITTLE}/train"
        first = asked(http, f"{base}/create")["id"]
        for _ in range(3):
            asked(http, f"{base}/reset", id=first)
        second = asked(http, f"{base}/create")["id"]
        assert refusal(http, f"{base}/reset", id=first) == (404, "unknown_episode")
        asked(http, f"{base}/reset", id=second)


def test_a_token_can_be_the_password_of_the_address() -> None:
    with TestClient(create_application([Offer(BRITTLE)], token="sésame"), "http://localhost") as http:
        path = f"/agentgym/textcraft/{BRITTLE}/train/create"
        for written, status in (("any:sésame", 200), (":sésame", 200), ("any:", 401), ("sésame", 401)):
            basic = base64.b64encode(written.encode()).decode()
            assert http.post(path, headers={"Authorization": f"Basic {basic}"}).status_code == status
        assert http.post(path, headers={"Authorization": "Basic ***"}).status_code == 401


@pytest.mark.parametrize(
    ("server", "client", "world"),
    [
        ("textcraft", "textcraft", "frozen_lake"),
        ("search", "searchqa", "search"),
        ("webarena", "webarena", "frozen_lake"),
    ],
)
def test_our_world_for_agentgyms_servers_plays_ours_as_at_home(server: str, client: str, world: str) -> None:
    split: Split = "train"
    parameters = {"success_rate": 1.0} if world == "frozen_lake" else {}
    home = make_world(world, parameters)
    with serving(Offer(world, parameters)) as url:
        away = AgentGym(
            server=server, address=f"{url}/agentgym/{client}/{world}/{split}", train="0-3", validation="4", test="5"
        )
        for place, task in enumerate(away.tasks("train", 2)):
            with closing(home.make(home.tasks(split, 2)[place], 0)) as here, closing(away.make(task, 0)) as there:
                assert there.reset().text == here.reset().text
                for _ in range(home.limits.turns):
                    action = here.oracle(REMAINING).actions[0]
                    step, found = here.step(action), there.step(action)
                    assert found.observation.text == step.observation.text
                    if step.terminated:
                        break
                assert (found.terminated, found.success) == (True, True)
