"""A remote world is the local one: the same tasks and trajectories, over a network that delays, loses and repeats."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_samples import BRITTLE, FAULTS, REMAINING, WRONG, Clock, Counting, FaultyNetwork, send_over, serving

from envs.service import RemoteWorld
from envs.service.client import ServiceClient, ServiceFault
from envs.service.limits import ServiceLimits
from envs.service.offers import Offer
from envs.service.schema import Health
from turnwise import seeding
from turnwise.agent.episode_config import EpisodeConfig
from turnwise.agent.formats import ThinkAnswerFormat
from turnwise.agent.host import Host, RetryPolicy
from turnwise.agent.loop import RolloutResult, make_episodes, play_scripted, roll_out
from turnwise.checking import check_world
from turnwise.data.task_sets import task_set_digest
from turnwise.errors import ConfigurationError, ContractError
from turnwise.experiment import load
from turnwise.world import SPLITS, World, make_world

PARAMETERS = Path(__file__).parents[3] / "tests" / "parameters.yaml"
SLIPPERY = {"success_rate": 0.7, "actions_per_turn": 2}
HOPS = {"hops": [1, 2], "turns": 4}
SERVED: dict[str, dict[str, Any]] = {"frozen_lake": SLIPPERY, "search": HOPS}
VERSIONS = {name: make_world(name, parameters).version for name, parameters in SERVED.items()}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(*(Offer(name, parameters) for name, parameters in SERVED.items()), Offer(BRITTLE)) as address:
        yield address


def remote(address: str, name: str, **change: Any) -> RemoteWorld:
    told = {"url": address, "world": name, "version": VERSIONS.get(name, "3"), "parameters": SERVED.get(name, {})}
    return RemoteWorld(**{**told, **change})


def local(name: str) -> World:
    return make_world(name, SERVED[name])


# The same world


def test_the_state_of_a_remote_world_is_what_its_server_calls_it_by_code_and_data() -> None:
    def state(content: str) -> dict[str, str]:
        with serving(Offer("frozen_lake", SLIPPERY), content_of=lambda world, parameters: content) as address:
            told = {"url": address, "world": "frozen_lake", "version": VERSIONS["frozen_lake"], "parameters": SLIPPERY}
            return dict(RemoteWorld.state(told))

    assert set(state("one")) == {"served"} and state("one") == state("one") != state("another")


@pytest.mark.parametrize("name", SERVED)
def test_all_that_a_world_says_of_itself_is_the_served_worlds(url: str, name: str) -> None:
    here, there = local(name), remote(url, name)
    for told in (
        *("name", "version", "instruction", "grammar", "limits", "verbs", "baselines"),
        *("primary_metric", "oracle_success", "rewards", "columns", "names_states"),
    ):
        assert getattr(there, told) == getattr(here, told), told
    assert there.attribution() == here.attribution()


@pytest.mark.parametrize("action", WRONG)
def test_what_breaks_the_contract_is_refused_as_it_is_here_and_not_tried_again(url: str, action: str) -> None:
    said = []
    for world in (make_world(BRITTLE, {}), remote(url, BRITTLE)):
        host = Host(world, world.tasks("train", 4)[3], 0, RetryPolicy(seconds=20, retries=2))
        host.reset()
        host.start((action,))
        with pytest.raises(ContractError, match=r"of brittle/train/3 must") as refused:
            host.finish()
        said.append(str(refused.value))
    here, there = said
    assert there.endswith(here)


def test_a_server_that_answers_in_another_form_breaks_the_contract(url: str) -> None:
    step = {"observation": {"text": "so", "state": None}, "rewards": {"counted": None}}
    answer = httpx.Response(200, json={"number": 1, "step": step})
    world = remote(url, BRITTLE)
    environment = world.make(world.tasks("train", 1)[0], 0)
    environment._client = ServiceClient(
        url, seconds=20, retries=0, token_variable="", transport=lambda: Counting(lambda: answer)
    )
    with pytest.raises(ContractError, match=r"step\.rewards\.counted: input should be a valid number; found None"):
        environment.step("count")


def test_tasks_that_differ_in_their_limits_do_so_from_afar(url: str) -> None:
    there = remote(url, BRITTLE)
    tasks = there.tasks("test", 3)
    assert [there.limits_of(task).turns for task in (*tasks, *tasks)] == [1, 2, 3, 1, 2, 3]
    assert [there.split_size(split) for split in SPLITS] == [100, 100, 100]
    alike = remote(url, "frozen_lake")
    assert alike.limits_of(alike.tasks("test", 1)[0]) == alike.limits
    assert alike.split_size("test") is None


@pytest.mark.parametrize("name", SERVED)
def test_task_sets_have_the_digests_of_the_served_worlds(url: str, name: str) -> None:
    for split in SPLITS:
        assert task_set_digest(remote(url, name).tasks(split, 10)) == task_set_digest(local(name).tasks(split, 10))


def test_more_tasks_than_there_are_is_the_same_mistake_as_here(url: str) -> None:
    with pytest.raises(ValueError, match="count must be at most 100; found 101"):
        remote(url, BRITTLE).tasks("test", 101)


@pytest.mark.parametrize("name", SERVED)
def test_every_baseline_decides_as_here_and_its_generator_goes_on_as_here(url: str, name: str) -> None:
    here, there = local(name), remote(url, name)
    generators = [seeding.generator(7, "player") for _ in "ab"]
    for task in there.tasks("test", 3):
        environments = [world.make(task, 5) for world in (here, there)]
        assert environments[0].reset() == environments[1].reset()
        for baseline in (*here.baselines, "random", *here.baselines):
            asked = [
                each.decide(baseline, generator, REMAINING)
                for each, generator in zip(environments, generators, strict=True)
            ]
            assert asked[0] == asked[1]
            assert generators[0].bit_generator.state == generators[1].bit_generator.state
            assert environments[0].oracle(REMAINING) == environments[1].oracle(REMAINING)
            for action in asked[0].actions:
                assert environments[0].step(action) == environments[1].step(action)
        environments[1].close()


def test_a_remote_world_passes_the_public_check(url: str) -> None:
    parameters = {"url": url, "world": "frozen_lake", "version": VERSIONS["frozen_lake"], "parameters": SLIPPERY}
    found = check_world(RemoteWorld(**parameters), count=4, parameters=parameters, sample=1)
    assert found.passed, "\n".join(found.lines())


# The same trajectories


def rules(world: World) -> EpisodeConfig:
    return EpisodeConfig(world, ThinkAnswerFormat(), world.limits, RetryPolicy(seconds=60, retries=2))


def scripted(world: World) -> RolloutResult:
    """Random and oracle turns mixed, two episodes of each task."""
    episodes = make_episodes(rules(world), world.tasks("test", 8), 2, seed=11)
    baselines = ("random", "oracle")
    return play_scripted(episodes, ThinkAnswerFormat().write, lambda index, turn: baselines[(index + turn) % 2], seed=2)


@dataclass(frozen=True)
class Said:
    episode: int
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...] = ()
    complete: bool = True


class Talker:
    """An engine whose reply depends on how many were asked for before, as sampled ones do, and takes 1 to 4 steps."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts, self._choice = texts, random.Random(3)
        self._running: list[list[Any]] = []
        self.submitted: list[int] = []

    @property
    def in_flight(self) -> int:
        return len(self._running)

    def submit(self, episode: int, context: Sequence[int], reply_tokens: int | None = None) -> None:
        self.submitted.append(episode)
        text = self._choice.randrange(len(self._texts))
        self._running.append([self._choice.randint(1, 4), episode, text])

    def step(self) -> list[Said]:
        for running in self._running:
            running[0] -= 1
        done = sorted(running for running in self._running if not running[0])
        self._running = [running for running in self._running if running[0]]
        return [Said(episode, (text,)) for _, episode, text in done]

    def decode(self, tokens: tuple[int, ...]) -> str:
        return self._texts[tokens[0]]


def form(*actions: str) -> str:
    return f"<think> so</think><answer> {' || '.join(actions)}</answer>"


TEXTS = {
    "frozen_lake": [
        form("Left"),
        form("Down", "Right"),
        form("Right", "fly"),
        form("Up", "Down"),
        "no form",
        form("é√"),
    ],
    "search": [form("search[Paris country]"), form("answer[Japan]"), form("search[]"), form("look"), form("search[x")],
}


def rolled_out(world: World, delay: int) -> tuple[RolloutResult, list[int]]:
    talker = Talker(TEXTS[world.name])
    episodes = make_episodes(rules(world), world.tasks("train", 12), 2, seed=4)
    return roll_out(episodes, talker, talker.decode, world_delay=delay), talker.submitted


@pytest.mark.parametrize("name", SERVED)
def test_scripted_baselines_play_the_same_trajectories_over_a_faulty_network(url: str, name: str) -> None:
    expected = scripted(local(name)).trajectories
    assert len(expected) == 16
    network = FaultyNetwork()
    played = scripted(send_over(remote(url, name), url, network))
    assert played.trajectories == expected and not played.lost
    assert all(network.faults[fault] >= 10 for fault in FAULTS), network.faults


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("name", SERVED)
def test_a_rollout_submits_and_plays_the_same_over_a_faulty_network(url: str, name: str, delay: int) -> None:
    expected, order = rolled_out(local(name), delay)
    assert len(expected.trajectories) == 24 and order[24:] != sorted(order[24:])
    network = FaultyNetwork()
    played, submitted = rolled_out(send_over(remote(url, name), url, network), delay)
    assert (played.trajectories, submitted) == (expected.trajectories, order)
    assert all(network.faults[fault] >= 10 for fault in FAULTS), network.faults


class Forgetful(httpx.BaseTransport):
    """A network on which an episode's third step finds that the server has freed the episode: once for each task."""

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport()
        self._task_of: dict[str, bytes] = {}
        self.forgotten: set[bytes] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/step") and b'"number":3,' in request.content:
            episode = request.url.path.rpartition("/")[0]
            if self._task_of[episode] not in self.forgotten:
                self.forgotten.add(self._task_of[episode])
                self._inner.handle_request(httpx.Request("DELETE", request.url.copy_with(path=episode))).read()
        response = self._inner.handle_request(request)
        if request.url.path == "/v2/episodes":
            episode = httpx.Response(200, content=response.read()).json()["episode"]
            self._task_of[f"/v2/episodes/{episode}"] = request.content.partition(b'"seed"')[0]
            return httpx.Response(200, content=response.content)
        return response


def test_an_episode_that_the_server_has_lost_is_played_again_and_is_the_same(url: str) -> None:
    network = Forgetful()
    played = scripted(send_over(remote(url, "frozen_lake"), url, network))
    assert played.trajectories == scripted(local("frozen_lake")).trajectories
    assert len(network.forgotten) >= 4


def test_many_threads_share_one_world(url: str) -> None:
    world = remote(url, "frozen_lake")
    tasks = world.tasks("train", 40)
    found: dict[int, list[object]] = {}

    def play(index: int, of: World, into: dict[int, list[object]]) -> None:
        environment = of.make(tasks[index], index)
        said: list[object] = [environment.reset()]
        generator = seeding.generator(index, "thread")
        for _ in range(5):
            decision = environment.decide("random", generator, REMAINING)
            said += [decision, *(environment.step(action) for action in decision.actions)]
        environment.close()
        into[index] = said

    threads = [threading.Thread(target=play, args=(index, world, found)) for index in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected: dict[int, list[object]] = {}
    for index in range(40):
        play(index, local("frozen_lake"), expected)
    assert found == expected


def still_open(url: str) -> float:
    lines = httpx.get(f"{url}/v2/metrics").text.splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("turnwise_service_episodes_open{"))


def test_nothing_is_left_open_but_what_the_network_made_twice_and_that_for_a_lease() -> None:
    clock = Clock()
    limits = ServiceLimits(lease_seconds=0.1)
    with serving(Offer("frozen_lake", SLIPPERY), limits=limits, clock=clock) as url:
        scripted(remote(url, "frozen_lake"))
        while still_open(url):  # a host does not wait for its world to close
            time.sleep(0.01)
        network = FaultyNetwork()
        scripted(send_over(remote(url, "frozen_lake"), url, network))
        clock.now += 1
        while still_open(url):
            time.sleep(0.01)


# What cannot be played


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "127.0.0.1:80"}, "url must be such as http://127.0.0.1:8600; found '127.0.0.1:80'"),
        ({"url": "ftp://127.0.0.1"}, "url must be such as"),
        ({"url": "http://127.0.0.1:99999"}, "url must be such as"),
        ({"url": "http://[::1"}, "url must be such as"),
        ({"version": "0"}, "version must be that of the world which is served; found '0'.*has the version '1'"),
        ({"world": "sokoban"}, "world and parameters must be those that the server was started with, which are froz"),
        (
            {"parameters": {}},
            r'frozen_lake with {"success_rate": 0.7,.*found frozen_lake with {}',
        ),
        ({"seconds": 0}, "seconds must be a number above 0"),
        ({"retries": -1}, "retries must be a whole number from 0"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_played(url: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        remote(url, "frozen_lake", **change)


def test_the_order_and_the_kind_of_numbers_make_no_other_parameters(url: str) -> None:
    written = {"actions_per_turn": 2, "success_rate": 0.7}
    assert remote(url, "frozen_lake", parameters=written).served == remote(url, "frozen_lake").served


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"url must be the address of a running `turnwise serve`; GET .*ConnectError"):
        RemoteWorld(url="http://127.0.0.1:1", world="frozen_lake", version="1", retries=0)


def test_a_server_that_speaks_another_version_of_the_schema_is_told_so(url: str) -> None:
    # Its addresses begin with another prefix, so that ours are not among them.
    with pytest.raises(ValueError, match=r"/v2/worlds must answer 200; found 404.*must speak version 2 of"):
        remote(f"{url}/other", "frozen_lake")


def test_credit_by_visits_to_a_state_is_refused_where_the_served_world_names_none() -> None:
    blackjack = {"id": "Blackjack-v1"}
    version = make_world("gymnasium", blackjack).version
    with serving(Offer("gymnasium", blackjack)) as url:
        parameters = {"url": url, "world": "gymnasium", "version": version, "parameters": blackjack}
        settings = (
            f"world={{name: remote, parameters: {json.dumps(parameters)}}}",
            "rewards={reward: {level: outcome, weight: 1.0}}",
            "agent.format=think-answer",
            "policy.model=a/b",
            "warm_start.enabled=false",
            "variants={base: {}}",
            "ablation.variants=[base]",
        )
        assert load(PARAMETERS, settings=settings).credit.estimator == "grpo"
        with pytest.raises(ConfigurationError, match=r"'gymnasium' names none: choose another estimator"):
            load(PARAMETERS, settings=(*settings, "credit.estimator=gigpo"))


def test_a_process_that_was_forked_off_shares_no_connection(url: str) -> None:
    client = ServiceClient(url, seconds=20, retries=0, token_variable="")
    client.get("/health", Health)
    before = list(client._idle)
    client.get("/health", Health)
    assert list(client._idle) == before and len(before) == 1
    client._process += 1  # as if this were another process than the one that made the client
    client.get("/health", Health)
    assert len(client._idle) == 1 and list(client._idle) != before


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Offer(BRITTLE), token="sesame") as url:
        monkeypatch.setenv("FIRST_TOKEN", "wrong")
        with pytest.raises(
            ValueError, match=r"401: the request must have the header .*: set FIRST_TOKEN to the server"
        ):
            remote(url, BRITTLE, token_variable="FIRST_TOKEN")
        monkeypatch.setenv("SECOND_TOKEN", "sesame")
        world = remote(url, BRITTLE, token_variable="SECOND_TOKEN")
        environment = world.make(world.tasks("test", 1)[0], 0)
        assert environment.reset().text == "ready on 1 thread"
        environment.close()


def test_a_task_of_another_world_is_refused_as_here(url: str) -> None:
    with pytest.raises(ValueError, match="must have an id that begins so"):
        remote(url, "frozen_lake").make(local("search").tasks("test", 1)[0], 0)


def test_a_full_server_is_asked_again_until_a_place_is_free() -> None:
    with serving(Offer(BRITTLE), limits=ServiceLimits(episodes=1)) as url:
        world = remote(url, BRITTLE)
        first = world.make(world.tasks("test", 1)[0], 0)
        with pytest.raises(ServiceFault, match="429: at most 1 episodes may be open"):
            world.make(world.tasks("test", 1)[0], 0)
        threading.Timer(0.3, first.close).start()
        patient = ServiceClient(url, seconds=20, retries=100, token_variable="")
        world.client = patient
        assert world.make(world.tasks("test", 1)[0], 0).reset().text == "ready on 1 thread"


def unreachable() -> httpx.Response:
    raise httpx.ConnectError("no route")


def refusal(status: int, code: str) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json={"error": {"code": code, "message": "because"}})


@pytest.mark.parametrize(
    ("answer", "requests", "message"),
    [
        (unreachable, 3, "must be answered; found ConnectError: no route, 3 times"),
        (lambda: httpx.Response(502, text="<html>"), 3, "must answer 200; found 502: <html>"),
        (refusal(429, "too_many_episodes"), 3, "429: because"),
        (refusal(503, "worker_died"), 1, "503: because"),
        (refusal(504, "world_hung"), 1, "504: because"),
        (refusal(504, ""), 3, "504: because"),
        (refusal(500, "internal"), 1, "500: because"),
        (refusal(404, "unknown_episode"), 1, "404: because"),
        (lambda: httpx.Response(200, text="{}"), 1, "must answer as the schema says"),
        (lambda: httpx.Response(302, headers={"Location": "/"}), 1, "302"),
    ],
)
def test_what_may_pass_is_asked_again_and_what_will_not_is_not(
    answer: Callable[[], httpx.Response], requests: int, message: str
) -> None:
    network = Counting(answer)
    client = ServiceClient(
        "http://nowhere", seconds=1, retries=2, token_variable="", transport=lambda: network, first_wait=0.001
    )
    with pytest.raises(ServiceFault, match=message):
        client.get("/health", Health)
    assert network.requests == requests
