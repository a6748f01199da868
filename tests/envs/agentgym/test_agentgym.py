import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from agentgym_servers import BROKEN_ITEM, STANDINS, Standin, json_reply, served
from fastapi import Request, Response
from hypothesis import given
from hypothesis import strategies as st

from envs.agentgym import AgentGym
from envs.agentgym.client import ServerFault
from envs.agentgym.servers import SERVERS
from envs.agentgym.world import AgentGymEnvironment
from turnwise import seeding
from turnwise.agent.host import Host, RetryPolicy
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.errors import ContractError, WorldLost
from turnwise.world import SPLITS, Remaining, Step, make_world

ITEMS = {"train": "0-9", "validation": "10-12", "test": f"13, 101, {BROKEN_ITEM}"}
REMAINING = Remaining(5, 1, 5)

SOLVED = {
    "textcraft": ["get 1 log", "craft 4 planks using 1 log"],
    "babyai": ["turn left", "go to red ball 1"],
    "sciworld": ["go to kitchen", "focus on plant"],
    "webshop": ["search[red mug]", "click[b01]", "click[buy now]"],
    "search": ["search[France]", "answer[Paris]"],
    "webarena": ["click [1]", "stop [5]"],
    "alfworld": ["look", "take mug 1 from desk 1"],
}
"""A way to solve each stand-in."""
SCORES = {"babyai": 0.9}
"""The score of a solved task, where it is not 1."""


@pytest.fixture(scope="module")
def served_standins() -> Iterator[dict[str, tuple[Standin, str]]]:
    """Every stand-in, served, and its address."""
    with ExitStack() as stack:
        made = {name: make() for name, make in STANDINS.items()}
        yield {name: (standin, stack.enter_context(served(standin.app))) for name, standin in made.items()}


@pytest.fixture
def standins(served_standins: dict[str, tuple[Standin, str]]) -> dict[str, tuple[Standin, str]]:
    """The stand-ins, without what other tests left open."""
    for standin, _ in served_standins.values():
        standin.open.clear()
        standin.heard.clear()
    return served_standins


def world_at(address: str, server: str, **parameters: Any) -> AgentGym:
    return AgentGym(**{"server": server, "address": address, **ITEMS, **parameters})


def opened(world: AgentGym, item: int = 0) -> AgentGymEnvironment:
    task = world._task(item, "train")
    environment = world.make(task, 0)
    environment.reset()
    return environment


def walk(environment: AgentGymEnvironment, actions: list[str]) -> list[Step]:
    return [environment.step(action) for action in actions]


@pytest.mark.parametrize("server", SERVERS)
def test_each_server_is_played_to_its_end_by_its_own_fields(standins: dict[str, Any], server: str) -> None:
    standin, address = standins[server]
    world = world_at(address, server)
    task = world.tasks("train", 4)[3]
    environment = world.make(task, 0)
    first = environment.reset()
    assert "3" in first.text or server == "sciworld"
    steps = walk(environment, SOLVED[server])
    assert all(step.valid for step in steps)
    assert [step.success for step in steps] == [False] * (len(steps) - 1) + [True]
    assert [step.terminated for step in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(step.rewards["score"] for step in steps) == pytest.approx(SCORES.get(server, 1.0))
    assert len(standin.open) == 1
    environment.close()
    assert len(standin.open) == (1 if server == "alfworld" else 0)  # which has no route to close by


def test_the_first_observation_is_what_the_server_tells_a_newcomer(standins: dict[str, Any]) -> None:
    seen = {}
    for server in ("sciworld", "webshop", "search", "webarena"):
        world = world_at(standins[server][1], server)
        with closing(world.make(world._task(7, "train"), 0)) as environment:
            seen[server] = environment.reset().text
    assert seen == {
        "sciworld": "Your task is to find a plant.\nThis room is the hallway.",
        "webshop": "WebShop [SEP] Instruction: [SEP] find a red mug number 7 [SEP] start",
        "search": "Question: what is the capital of France (7)?",
        "webarena": "OBJECTIVE: how much is mug 7?\n[1] link 'Shop'",
    }


@pytest.mark.parametrize("server", SERVERS)
def test_an_error_of_the_server_is_raised_however_it_says_so(standins: dict[str, Any], server: str) -> None:
    world = world_at(standins[server][1], server)
    environment = world.make(world._task(BROKEN_ITEM, "test"), 0)
    with pytest.raises(ServerFault, match=r"list index out of range|TimeoutError|must answer 200; found 500"):
        environment.reset()


def test_an_error_in_the_middle_is_missing_data_for_the_host_and_not_a_reward(standins: dict[str, Any]) -> None:
    standin, address = standins["textcraft"]
    world = world_at(address, "textcraft")
    host = Host(world, world.tasks("train", 1)[0], 0, RetryPolicy(retries=0))
    host.reset()
    standin.open.clear()
    host.start(["get 1 log"])
    with pytest.raises(WorldLost, match=r"POST http://127.*/step failed: The id \d+ is not valid"):
        host.finish()


def test_the_host_plays_a_lost_episode_again_on_a_new_remote_environment(standins: dict[str, Any]) -> None:
    standin, address = standins["textcraft"]
    world = world_at(address, "textcraft")
    host = Host(world, world.tasks("train", 1)[0], 0, RetryPolicy(retries=1))
    host.reset()
    host.start(["get 1 log"])
    host.finish()
    standin.open.clear()
    host.start(["craft 4 planks using 1 log"])
    assert host.finish()[-1].success
    host.close()


def test_a_server_without_a_route_to_close_is_told_of_once_and_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    standin = STANDINS["alfworld"]()
    asked: list[str] = []

    @standin.app.middleware("http")
    async def listen(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        asked.append(request.url.path)
        return await proceed(request)

    with served(standin.app) as address:
        before = set(threading.enumerate())
        for _ in range(3):  # as each iteration of a run makes its world
            world = world_at(address, "alfworld")
            for task in world.tasks("train", 2):
                host = Host(world, task, 0, RetryPolicy(retries=0))
                host.reset()
                host.close()
                for thread in set(threading.enumerate()) - before:
                    if thread.name == "world":  # a host does not wait for it to close
                        thread.join()
    assert asked.count("/create") == 6 and asked.count("/close") == 1
    (note,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert note.startswith(f"the server at {address} has no route `close`")


def test_a_close_that_fails_is_a_fault() -> None:
    with served(json_reply({"error": "out of order"})) as address, pytest.raises(ServerFault, match="/close failed"):
        world_at(address, "textcraft").client.close({"id": 1})


def test_a_server_that_is_not_there_is_a_fault() -> None:
    with served(json_reply({})) as address:
        pass
    world = world_at(address, "textcraft")
    with pytest.raises(ServerFault, match=r"POST http://127.*/create must be answered; found ConnectError"):
        opened(world)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({}, "a reply must have the field 'id'; found the fields "),
        ([], "a reply must have the field 'id'; found \\[\\]"),
        ({"id": "one"}, "the number of a new environment must be a whole number; found 'one'"),
        ({"id": 1}, "a reply must have the field 'observation'; found the fields id"),
        ({"id": 1, "observation": None}, "the field 'observation' must be a text; found None"),
        ({"id": 1, "error": "out of order"}, "POST .*/create failed: out of order"),
    ],
)
def test_a_reply_of_another_form_is_a_fault(reply: Any, message: str) -> None:
    with served(json_reply(reply)) as address, pytest.raises(ServerFault, match=message):
        opened(world_at(address, "textcraft"))


def test_a_reward_that_is_no_number_breaks_the_contract_and_an_end_that_is_no_truth_is_a_fault() -> None:
    for reply, error, message in (
        ({"done": False, "reward": "1"}, ContractError, "'reward' of a server's reply must be a number; found '1'"),
        ({"done": False, "reward": None}, ContractError, "'reward' of a server's reply must be a number; found None"),
        ({"done": 0, "reward": 0}, ServerFault, "'done' must be true or false; found 0"),
    ):
        with served(json_reply({"id": 1, "observation": "x", **reply})) as address:
            environment = opened(world_at(address, "textcraft"))
            with pytest.raises(error, match=message):
                environment.step("inventory")


# What the table puts right


def test_babyais_reward_is_counted_once_and_a_slow_success_ends_the_episode(standins: dict[str, Any]) -> None:
    # Item 101: reward 0.4 and `done` false, as the server does in the second half of the time.
    with closing(opened(world_at(standins["babyai"][1], "babyai"), 101)) as environment:
        step = environment.step("go to red ball 1")
        assert (step.terminated, step.success, step.rewards["score"]) == (True, True, pytest.approx(0.4))
        after = environment.step("go to red ball 1")
    assert (after.observation.text, dict(after.rewards), after.terminated) == ("The episode is over.", {}, True)


def test_a_reward_that_is_told_again_is_counted_once() -> None:
    # What BabyAI's server does after an action that was not carried out: the last reward stands in the reply again.
    reply = {"id": 1, "observation": "x", "done": False, "reward": 0.3}
    with served(json_reply(reply)) as address:
        environment = opened(world_at(address, "textcraft"))
        steps = walk(environment, ["look", "look", "look"])
    assert [step.rewards["score"] for step in steps] == [0.3, 0, 0]


def test_a_failed_science_task_loses_what_it_had(standins: dict[str, Any]) -> None:
    with closing(opened(world_at(standins["sciworld"][1], "sciworld"))) as environment:
        steps = walk(environment, ["go to kitchen", "focus on agent"])
    assert [step.rewards["score"] for step in steps] == pytest.approx([0.33, -1.33])
    assert steps[-1].terminated and not steps[-1].success


def test_one_answer_ends_a_search(standins: dict[str, Any]) -> None:
    with closing(opened(world_at(standins["search"][1], "search"))) as environment:
        step = environment.step("answer[Rome]")
        assert step.terminated and not step.success and step.rewards["score"] == 0
        assert not environment.step("answer[Paris]").success


def test_webarenas_reward_counts_at_the_end_only(standins: dict[str, Any]) -> None:
    with closing(opened(world_at(standins["webarena"][1], "webarena"))) as environment:
        steps = walk(environment, ["click [1]", "stop [6]"])
    assert [step.rewards["score"] for step in steps] == [0, 0]
    assert not steps[-1].success


def test_half_a_purchase_is_a_score_and_no_success(standins: dict[str, Any]) -> None:
    with closing(opened(world_at(standins["webshop"][1], "webshop"))) as environment:
        step = walk(environment, ["search[mug]", "click[b02]", "click[buy now]"])[-1]
    assert (step.terminated, step.success, step.rewards["score"]) == (True, False, 0.5)


def test_actions_are_sent_in_the_form_that_the_server_reads(standins: dict[str, Any]) -> None:
    for server, action, sent in (
        ("search", "search[who was Curie?]", "<search>who was Curie?</search>"),
        ("webarena", "click [1]", "```click [1]```"),
        ("webshop", "click[b01]", "click[b01]"),
        ("textcraft", "  get 1 log ", "get 1 log"),
    ):
        standin, address = standins[server]
        with closing(opened(world_at(address, server))) as environment:
            environment.step(action)
        assert [body for route, body in standin.heard if route == "step"][-1] == sent


@pytest.mark.parametrize(
    ("server", "reply"),
    [
        ("textcraft", "dance"),
        ("babyai", "dance"),
        ("sciworld", "dance"),
        ("webshop", "buy it"),
        ("search", "Paris"),
        ("webarena", "dance"),
        ("alfworld", "dance"),
        *((server, " ") for server in SERVERS),
    ],
)
def test_what_is_no_action_is_invalid_and_ends_nothing(standins: dict[str, Any], server: str, reply: str) -> None:
    environment = opened(world_at(standins[server][1], server))
    step = environment.step(reply)
    assert not step.valid and not step.effective and not step.terminated and dict(step.rewards) == {}
    assert step.observation.text.strip()
    assert walk(environment, SOLVED[server])[-1].success


# The baseline policies


def test_there_is_a_random_baseline_exactly_where_actions_are_told(standins: dict[str, Any]) -> None:
    baselines = {server: world_at("http://127.0.0.1:1", server).baselines for server in SERVERS}
    with_random = {server for server, names in baselines.items() if names == ("random",)}
    assert with_random == {"babyai", "webshop", "alfworld"}
    assert all(names == () for server, names in baselines.items() if server not in with_random)
    environment = opened(world_at(standins["textcraft"][1], "textcraft"))
    with pytest.raises(NotImplementedError, match="no random baseline"):
        environment.random(seeding.generator(0, "player"), REMAINING)
    with pytest.raises(NotImplementedError, match="no oracle"):
        environment.oracle(REMAINING)


@pytest.mark.parametrize("server", ["babyai", "webshop", "alfworld"])
def test_the_random_baselines_actions_are_accepted(standins: dict[str, Any], server: str) -> None:
    world = world_at(standins[server][1], server, test="14-20", turns=6)
    for task in world.tasks("test", 6):
        episode = play(world, task, 0, "random")
        assert all(step.valid for step in episode.steps)


def test_the_random_baseline_is_uniform_over_what_is_offered(standins: dict[str, Any]) -> None:
    environment = opened(world_at(standins["babyai"][1], "babyai"))
    generator = seeding.generator(0, "player")
    drawn = Counter(environment.random(generator, REMAINING).actions[0] for _ in range(600))
    assert set(drawn) == {"turn left", "go to red ball 1", "check available actions"}
    # 200 each; three standard errors are 35.
    assert all(abs(count - 200) < 35 for count in drawn.values())


def test_the_random_shopper_searches_words_of_the_page_and_clicks_what_is_there(standins: dict[str, Any]) -> None:
    environment = opened(world_at(standins["webshop"][1], "webshop"))
    generator = seeding.generator(0, "player")
    first = environment.random(generator, REMAINING).actions[0]
    words = first.removeprefix("search[").removesuffix("]").split()
    assert len(words) == 2
    assert set(words) <= {"webshop", "sep", "instruction", "find", "a", "red", "mug", "number", "start"}
    environment.step(first)
    drawn = {environment.random(generator, REMAINING).actions[0] for _ in range(60)}
    assert drawn == {"click[back to search]", "click[b01]", "click[b02]"}


# The world


def test_a_world_of_a_server_that_offers_actions_keeps_the_contract(standins: dict[str, Any]) -> None:
    standin, address = standins["babyai"]
    parameters = {
        "server": "babyai",
        "address": address,
        "train": "0-4",
        "validation": "5-7",
        "test": "8-10",
        "turns": 5,
    }
    report = check_world(AgentGym(**parameters), count=3, parameters=parameters)
    assert report.passed, report.lines()
    assert standin.open == {}


def test_many_episodes_at_once_share_the_connections_and_keep_apart(standins: dict[str, Any]) -> None:
    standin, address = standins["sciworld"]
    world = world_at(address, "sciworld", train="200-239")
    found: dict[str, list[float]] = {}

    def run(number: int) -> None:
        with closing(opened(world, 200 + number)) as environment:
            # Every other one fails.
            last = "focus on plant" if number % 2 else "focus on agent"
            found[str(number)] = [step.rewards["score"] for step in walk(environment, ["go to kitchen", last])]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: sum(rewards) for number, rewards in found.items()} == {
        str(number): pytest.approx(1.0 if number % 2 else -1.0) for number in range(40)
    }
    assert standin.open == {}


def test_items_are_tasks_in_the_order_in_which_they_are_named() -> None:
    world = world_at("http://127.0.0.1:1", "babyai", train="5, 2-4, 9")
    assert [task.id for task in world.tasks("train", 5)] == [f"agentgym/1/babyai/{item}" for item in (5, 2, 3, 4, 9)]
    assert {split: world.split_size(split) for split in SPLITS} == {"train": 5, "validation": 3, "test": 3}
    with pytest.raises(ValueError, match="count must be at most 5, the items that the parameter train names; found 6"):
        world.tasks("train", 6)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30, unique=True))
def test_listed_numbers_are_read_back(items: list[int]) -> None:
    world = AgentGym(
        server="babyai",
        address="http://127.0.0.1:1",
        train=", ".join(map(str, items)),
        validation="1000",
        test="2000-2005",
    )
    assert world.items["train"] == tuple(items)


def test_making_the_world_and_its_tasks_asks_the_server_nothing() -> None:
    world = world_at("http://127.0.0.1:1", "babyai")
    for split in SPLITS:
        world.make(world.tasks(split, 1)[0], 0).close()


def test_a_task_of_another_server_is_refused() -> None:
    task = world_at("http://127.0.0.1:1", "babyai").tasks("train", 1)[0]
    with pytest.raises(ValueError, match="a task of 'agentgym/1/textcraft/' must have an id that begins so"):
        world_at("http://127.0.0.1:1", "textcraft").make(task, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"server": "chess"}, "server must be one of alfworld, babyai, .*; found 'chess'"),
        ({"address": "127.0.0.1:80"}, "address must be such as http://"),
        ({"address": "ftp://host"}, "address must be such as http://"),
        ({"address": None}, "address must be such as http://"),
        ({"train": ""}, "train must name items once each, such as '0-373, 400'; found ''"),
        ({"train": "1, 1"}, "train must name items once each"),
        ({"train": "3-1"}, "train must name items once each"),
        ({"train": "a"}, "train must name items once each"),
        ({"test": "0-20"}, "train and test must share no item; both name 0"),
        ({"turns": 0}, "turns must be"),
        ({"seconds": 0}, "seconds must be a number above 0; found 0"),
        ({"fields": {"ends": "over"}}, "fields must be of instruction, .*; found 'ends'"),
        ({"fields": {"ended": 1}}, "fields.ended must be a value such as 'done'; found 1"),
        ({"fields": {"value": "sum"}}, "fields.value must be one of .*; found 'sum'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world_at(**{"address": "http://127.0.0.1:1", "server": "babyai", **parameters})


def test_a_server_of_ones_own_is_played_by_other_field_names() -> None:
    reply = {"number": 3, "text": "hello", "over": True, "points": 5, "actions": ["wait"]}
    fields = {
        "created": "number",
        "first": ["text"],
        "observation": "text",
        "ended": "over",
        "reward": "points",
        "scale": 0.1,
        "solved": 0.5,
        "offers": "",
    }
    with served(json_reply(reply)) as address:
        environment = opened(world_at(address, "babyai", fields=fields))
        step = environment.step("wait")
    assert (step.observation.text, step.terminated, step.success) == ("hello", True, True)
    assert step.rewards["score"] == pytest.approx(0.5)


def test_the_world_is_found_by_module_and_class() -> None:
    parameters = {"server": "search", "address": "http://127.0.0.1:1", **ITEMS}
    world = make_world("envs.agentgym:AgentGym", parameters)
    assert world.verbs == frozenset({"search", "answer"})
    assert world.limits.turns == 4
