"""ScienceWorld: episodes that share a process, and processes that die, hang or cannot be started."""

import gc
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from sciworld_samples import opened, task_of

from envs.sciworld import SciWorld
from envs.sciworld.pool import Pool
from envs.sciworld.simulator import Simulation, SimulatorLost
from envs.sciworld.variations import Variation
from turnwise.agent.host import Host, RetryPolicy
from turnwise.checking.playing import play
from turnwise.errors import WorldLost
from turnwise.world import Task

pytestmark = pytest.mark.needs("java")


# A process takes seconds to start, and more to warm up: several tests share those of a pool, and leave no episode open.


@pytest.fixture(scope="module")
def two_processes() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.end()


@pytest.fixture(scope="module")
def one_process() -> Iterator[Pool]:
    pool = Pool(1)
    yield pool
    pool.end()


@contextmanager
def opened_in(pool: Pool, *variations: Variation) -> Iterator[list[Simulation]]:
    """Episodes in the processes of a pool, which are closed at the end."""
    with ExitStack() as open_episodes:
        simulations = []
        for variation in variations:
            simulations.append(pool.open(variation, "easy"))
            open_episodes.callback(pool.close, simulations[-1])
        yield simulations


def transcripts(simulations: Sequence[Simulation], paths: Sequence[Sequence[str]]) -> list[list[Any]]:
    """What episodes say when each plays its path, an action of each in turn, with its valid actions at the end."""
    told: list[list[Any]] = [[simulation.look()] for simulation in simulations]
    for place in range(max(map(len, paths))):
        for simulation, path, heard in zip(simulations, paths, told, strict=True):
            if place < len(path):
                heard.append(simulation.step(path[place]))
    for simulation, heard in zip(simulations, told, strict=True):
        heard.append(simulation.valid_actions())
    return told


# Mixing paint makes objects, bees fly about, and circuits have actions that the others must not see.
MIXED = [
    (Variation("chemistry-mix-paint-secondary-color", 35), 0),
    (Variation("power-component", 3), 0),
    (Variation("find-animal", 256), 6),
    (Variation("grow-plant", 94), 0),
]


def test_episodes_in_one_process_go_as_they_go_alone(one_process: Pool) -> None:
    paths = []
    for variation, waits in MIXED:
        gold = one_process.gold_path(variation, "easy")[:12]
        paths.append([*gold, "go to outside", *["wait", "look around"] * waits, "look around"])
    alone = []
    for (variation, _), path in zip(MIXED, paths, strict=True):
        with opened_in(one_process, variation) as simulations:
            alone += transcripts(simulations, [path])
    with opened_in(one_process, *(variation for variation, _ in MIXED)) as together:
        assert transcripts(together, paths) == alone
    assert len(one_process.simulators) == 1


def test_episodes_spread_over_the_processes_and_closing_gives_them_back(two_processes: Pool) -> None:
    variation = Variation("find-plant", 0)
    two_processes.end()
    assert two_processes.simulators == ()
    first = two_processes.open(variation, "easy")
    assert len(two_processes.simulators) == 1
    others = [two_processes.open(variation, "easy") for _ in range(2)]
    assert [simulator.episodes for simulator in two_processes.simulators] == [2, 1]
    for simulation in [first, *others]:
        two_processes.close(simulation)
    assert [simulator.episodes for simulator in two_processes.simulators] == [0, 0]


def test_another_process_says_the_same_to_the_same_actions(two_processes: Pool) -> None:
    variation = Variation("chemistry-mix-paint-secondary-color", 35)
    path = [*two_processes.gold_path(variation, "easy"), "look around", "inventory"]
    with opened_in(two_processes, variation, variation) as (one, other):
        assert one.simulator is not other.simulator
        assert transcripts([one], [path]) == transcripts([other], [path])


def test_each_episode_numbers_its_own_objects(one_process: Pool) -> None:
    # Two objects of one number are one to the simulator's table of names.
    with opened_in(one_process, Variation("find-plant", 0)) as (first,):

        def next_number() -> int:
            with first.simulator.attending(first._own):
                return int(first.simulator._numbers.count())

        before = next_number()
        assert before > 1000
        with opened_in(one_process, Variation("power-component", 0)) as (second,):
            assert second.simulator is first.simulator
            second.step("wait1")
            assert next_number() == before


def test_episodes_on_threads_of_their_own_go_as_they_go_alone(
    two_processes: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SciWorld(types=["find-plant", "power-component", "find-non-living-thing"])
    monkeypatch.setitem(world.__dict__, "pool", two_processes)
    tasks = world.tasks("train", 4)
    alone = [play(world, task, 0, "oracle") for task in tasks]
    found: dict[str, Any] = {}

    def run(task: Task) -> None:
        found[task.id] = play(world, task, 0, "oracle")

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[task.id] for task in tasks] == alone


def test_a_heap_of_the_stated_size_holds_more_episodes_than_a_rollout_has(two_processes: Pool) -> None:
    # With what the interface keeps of every other task, the 22nd would be out of memory, at 11 MB each.
    with opened_in(two_processes, Variation("find-plant", 0)) as (first,):
        simulator = first.simulator
        simulations = [Simulation(simulator, Variation("find-plant", number), "easy") for number in range(23)]
        runtime = simulator._gateway.jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        assert (runtime.totalMemory() - runtime.freeMemory()) / len(simulations) < 2_000_000
        for simulation in simulations:
            simulation.close()


def test_a_process_that_dies_costs_its_own_episodes_only(two_processes: Pool) -> None:
    variation = Variation("find-plant", 0)
    with opened_in(two_processes, variation, variation) as (lost, kept):
        assert lost.simulator is not kept.simulator
        os.kill(lost.simulator.process.pid, signal.SIGKILL)
        with pytest.raises(SimulatorLost, match="the simulator's process ended"):
            lost.step("wait1")
        with pytest.raises(SimulatorLost, match="this episode with it"):
            lost.step("wait1")
        answer = kept.step("wait1")
        assert answer.text == "You decide to wait for 1 iterations."
        # The next one is served by a fresh process.
        with opened_in(two_processes, variation) as (fresh,):
            assert fresh.step("wait1") == answer
            assert fresh.simulator not in (lost.simulator, kept.simulator)


def test_a_process_that_hangs_is_ended() -> None:
    hasty = SciWorld(types=["find-plant"], processes=1, call_seconds=8.0).pool
    hanging = hasty.open(Variation("find-plant", 0), "easy")
    os.kill(hanging.simulator.process.pid, signal.SIGSTOP)
    with pytest.raises(SimulatorLost, match="gave no answer within 8 s, in which it hardly worked: it was ended"):
        hanging.step("wait1")
    assert hasty.simulators == ()
    assert hanging.simulator.process.poll() is not None


def test_the_host_plays_an_episode_of_a_dead_process_again_to_the_same_end(
    one_process: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SciWorld(types=["find-non-living-thing"], processes=1)
    # The pool of this size that worlds share may serve others.
    monkeypatch.setitem(world.__dict__, "pool", one_process)
    task = task_of(world, Variation("find-non-living-thing", 0))
    host = Host(world, task, 0, RetryPolicy(seconds=60, retries=1))
    first = host.reset()
    answers = []
    for action in ("open door to kitchen", "go to kitchen", "focus on cupboard", "move cupboard to red box"):
        if action.startswith("focus"):
            os.kill(one_process.simulators[0].process.pid, signal.SIGKILL)
        host.start([action])
        answers += host.finish()
    host.close()
    with closing(world.make(task, 0)) as environment:
        assert environment.reset() == first
        assert [environment.step(action) for action in ("open door to kitchen", "go to kitchen")] == answers[:2]
    assert answers[-1].success


def test_a_fault_of_the_simulator_is_missing_data_and_not_a_failure(
    two_processes: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SciWorld(types=["find-plant"])
    monkeypatch.setitem(world.__dict__, "pool", two_processes)
    with closing(opened(world, "find-plant")) as environment:
        environment.step("go to kitchen")
        running = environment._running
        with running.simulator.attending(running._own):
            running._interface.agentInterface().get().setErrorState("out of order")
        with pytest.raises(SimulatorLost, match="out of order"):
            environment.step("wait1")


def test_a_variation_that_the_simulator_cannot_load_is_lost_with_its_words(one_process: Pool) -> None:
    one_process.close(one_process.open(Variation("find-plant", 0), "easy"))
    before = one_process.simulators[0].episodes
    with pytest.raises(SimulatorLost, match="must load"):
        one_process.open(Variation("cook", 0), "easy")
    assert one_process.simulators[0].episodes == before


def test_a_lost_world_is_reported_when_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SciWorld(types=["find-plant"])
    monkeypatch.setitem(world.__dict__, "pool", Pool(1))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(WorldLost, match="must find Java on the path"):
        Host(world, world.tasks("train", 1)[0], 0, RetryPolicy(retries=0)).reset()


def test_objects_that_outlive_their_process_are_dropped_without_a_call_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = Pool(1)
    simulation = pool.open(Variation("boil", 0), "easy")
    pool.end()
    with caplog.at_level("DEBUG", logger="py4j"):
        del simulation
        gc.collect()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
