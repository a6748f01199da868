import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.sciworld import SciWorld, simulator
from envs.sciworld.episode import NOT_ACTIONS, SciWorldEnvironment
from envs.sciworld.pool import Pool
from envs.sciworld.simulator import Simulation, SimulatorLost
from envs.sciworld.variations import COUNTS, Variation, numbers
from turnwise import seeding
from turnwise.agent.host import Host, Patience
from turnwise.checking.episodes import play
from turnwise.errors import WorldLost
from turnwise.world import SPLITS, Remaining, Step, Task, make_world

pytestmark = pytest.mark.skipif(simulator.java() is None, reason="Java is not on the path: ScienceWorld runs on it")

BOTH_KINDS = ("find-plant", "power-component")
"""Types of which one has electrical actions and the other has not, under the same simplification."""
REMAINING = Remaining(20, 1, 20)


def task_of(world: SciWorld, variation: Variation) -> Task:
    """The task of a variation, whatever its split."""
    return world._task(variation, "train")


def opened(world: SciWorld, type: str, number: int = 0) -> SciWorldEnvironment:
    environment = world.make(task_of(world, Variation(type, number)), 0)
    environment.reset()
    return environment


@pytest.fixture
def world() -> SciWorld:
    return SciWorld(types=["find-plant", "power-component", "find-non-living-thing"])


@pytest.fixture
def own_pool() -> Iterator[Pool]:
    """A pool that a test may break."""
    pool = Pool(2)
    yield pool
    pool.end()


@pytest.fixture(scope="module")
def one_process() -> Iterator[Pool]:
    """A process that several tests share, since it takes seconds to start and more to warm up."""
    pool = Pool(1)
    yield pool
    pool.end()


# The variations


def test_counts_and_splits_are_the_simulators_own(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        running = environment._running
        with running.simulator.attending(running._own):
            fresh = running.simulator.interface()
            assert list(fresh.getTaskNames()) == sorted(COUNTS)
            assert {type: fresh.getTaskMaxVariations(type) for type in COUNTS} == COUNTS
            # The splits need a loaded task; these three cover counts with each remainder on division by four.
            for type in ("find-plant", "identify-life-stages-2", "lifespan-longest-lived"):
                fresh.load(type, 0, "easy", False)
                assert list(fresh.getVariationsTrain()) == list(numbers(type, "train"))
                assert list(fresh.getVariationsDev()) == list(numbers(type, "validation"))
                assert list(fresh.getVariationsTest()) == list(numbers(type, "test"))


def test_tasks_are_of_each_type_in_turn_and_a_prefix_of_one_order(world: SciWorld) -> None:
    tasks = world.tasks("test", 9)
    assert [task.tags["type"] for task in tasks] == list(world.types) * 3
    assert world.tasks("test", 4) == tasks[:4]
    # 75 test variations of either of the finding types and 5 of the other.
    everything = world.tasks("test", 155)
    assert Counter(task.tags["type"] for task in everything) == dict(zip(world.types, (75, 5, 75), strict=True))
    with pytest.raises(ValueError, match="count must be at most 155 for the test split"):
        world.tasks("test", 156)


def test_listing_tasks_starts_no_process() -> None:
    world = SciWorld(processes=63)
    for split in SPLITS:
        world.tasks(split, 20)
    world.make(world.tasks("train", 1)[0], 0).close()
    assert world.pool.simulators == ()


# The parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"types": []}, "types must be a list of different types of task"),
        ({"types": "boil"}, "types must be a list of different types of task"),
        ({"types": ["boil", "boil"]}, "types must be a list of different types of task"),
        ({"types": ["cook"]}, "types must be of boil, melt, .*; found 'cook'"),
        ({"simplification": "simple"}, "simplification must be 'easy', '' or different ones of teleportAction"),
        ({"simplification": "openDoors,openDoors"}, "simplification must be"),
        ({"simplification": None}, "simplification must be"),
        ({"simplification": "noElectricalAction"}, "must not have noElectricalAction with the types power-component"),
        ({"turns": 0}, "turns must be"),
        ({"processes": 0}, "processes must be a whole number from 1 to 64"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SciWorld(**parameters)


def test_the_instruction_tells_what_the_simplification_gives() -> None:
    assert "teleport" in SciWorld().grammar and "connect" in SciWorld().grammar
    assert "connect" not in SciWorld(types=["find-plant"]).grammar
    plain = SciWorld(simplification="")
    assert "teleport" not in plain.instruction + plain.grammar and "doors" not in plain.instruction


def test_the_published_setting_is_a_world_of_twenty_three_types() -> None:
    assert len(SciWorld(**SciWorld.presets["agentgym-rl"]).types) == 23


def test_a_task_of_other_parameters_is_refused(world: SciWorld) -> None:
    task = SciWorld(simplification="openDoors").tasks("train", 1)[0]
    with pytest.raises(ValueError, match=r"must have an id such as 'sciworld/1\.2\.3-1/easy/boil/7'"):
        world.make(task, 0)


# An episode


def test_the_first_observation_is_the_task_and_the_room(world: SciWorld) -> None:
    with closing(world.make(task_of(world, Variation("find-non-living-thing", 0)), 0)) as environment:
        lines = environment.reset().text.splitlines()
    assert lines[0] == (
        "Your task is to find a(n) non-living thing. First, focus on the thing. "
        "Then, move it to the red box in the kitchen."
    )
    assert lines[1].startswith("This room is called the hallway.")


def test_rewards_are_the_changes_of_the_score_and_sum_to_it(world: SciWorld) -> None:
    # The package's own figures after each action: 8, 25, 75 and 100 points.
    with closing(opened(world, "find-non-living-thing")) as environment:
        actions = ["open door to kitchen", "go to kitchen", "focus on cupboard", "move cupboard to red box"]
        steps = [environment.step(action) for action in actions]
    assert [step.rewards["score"] for step in steps] == pytest.approx([0.08, 0.17, 0.5, 0.25])
    assert [step.metrics["partial_credit"] for step in steps] == pytest.approx([0.08, 0.17, 0.5, 0.25])
    assert [step.success for step in steps] == [step.terminated for step in steps] == [False, False, False, True]


def test_a_wrong_focus_ends_the_episode_with_a_score_of_minus_one_and_no_credit(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        steps = [environment.step(action) for action in ("wait1", "focus on agent")]
    assert steps[-1].terminated and not steps[-1].success
    assert sum(step.rewards["score"] for step in steps) == pytest.approx(-1)
    assert steps[0].metrics["partial_credit"] > 0
    assert sum(step.metrics["partial_credit"] for step in steps) == pytest.approx(0)
    assert steps[-1].metrics["failed"] == 1


def test_after_the_end_everything_is_refused(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("focus on agent")
        step = environment.step("look around")
    assert (step.observation.text, step.terminated, step.valid) == ("The episode is over.", True, False)
    assert dict(step.rewards) == {}


@pytest.mark.parametrize(
    ("action", "effective"),
    [
        ("look around", False),
        ("inventory", False),
        ("task", False),
        ("help", False),
        ("wait1", True),
        ("close door to kitchen", True),
    ],
)
def test_looking_changes_nothing_and_acting_does(world: SciWorld, action: str, effective: bool) -> None:
    with closing(opened(world, "find-plant")) as environment:
        before = environment.step("wait1").observation
        step = environment.step(action)
    assert step.valid and step.effective == effective
    assert (step.observation.state != before.state) == effective


def test_what_is_no_action_is_told_what_is_legal(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        for text in ("dance", "", "\x00", "x" * 100_000, "ｌｏｏｋ", *NOT_ACTIONS):
            step = environment.step(text)
            assert not step.valid and not step.effective
            assert "look around, look at OBJ" in step.observation.text


def test_case_and_spaces_do_not_matter(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("wait1")
        assert environment.step("  Look   AROUND \n") == environment.step("look around")


def test_an_ambiguous_action_asks_and_a_number_answers(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("close door to kitchen")
        asked = environment.step("open door")
        assert asked.valid and "0: open door between kitchen and hallway" in asked.observation.text
        too_high = environment.step("99")
        assert not too_high.valid and "a number from 0 to 5" in too_high.observation.text
        answered = environment.step("0")
        assert answered.valid and answered.observation.text == "The door is now open."


def test_an_open_question_is_dropped_by_another_action_and_kept_by_what_is_none(world: SciWorld) -> None:
    def time(environment: SciWorldEnvironment) -> int:
        return environment._moves

    with closing(opened(world, "find-plant")) as environment:
        asked = environment.step("open door")
        before = time(environment)
        nothing = environment.step("dance")
        assert not nothing.valid and nothing.observation.state == asked.observation.state
        assert environment.step("0").valid
        environment.step("open door")
        passed = time(environment)
        assert environment.step("wait1").observation.text == "You decide to wait for 1 iterations."
        # Waiting takes its own time, and dropping the question none.
        with closing(opened(world, "find-plant")) as other:
            other.step("wait1")
            assert time(environment) - passed == time(other)
        assert passed == before + 1
        assert not environment.step("0").valid


def test_invalid_replies_do_not_let_time_pass(world: SciWorld) -> None:
    actions = ["wait1", "go to kitchen", "look around"]

    def walk(noise: Sequence[str]) -> list[Step]:
        with closing(opened(world, "find-plant")) as environment:
            steps = []
            for action in actions:
                for text in noise:
                    environment.step(text)
                steps.append(environment.step(action))
        return steps

    assert walk(["dance", "open nothing", "7"]) == walk([])


# The players


def test_the_oracle_follows_the_packages_own_path_to_the_full_score(world: SciWorld) -> None:
    for task in world.tasks("test", 3):
        episode = play(world, task, 0, "oracle")
        assert episode.success
        assert sum(step.rewards.get("score", 0) for step in episode.steps) == pytest.approx(1)


def test_the_oracle_goes_on_after_a_detour_that_did_no_harm(world: SciWorld) -> None:
    with closing(opened(world, "find-non-living-thing")) as environment:
        detours = iter(["inventory", "wait1", "look in cupboard"])
        for _ in range(12):
            environment.step(next(detours, "look around"))
            step = environment.step(environment.oracle(REMAINING).actions[0])
            if step.terminated:
                break
    assert step.success


def test_the_oracle_asks_again_where_its_question_was_dropped() -> None:
    # The gold path of this variation answers a question with 0 as its 37th action or so; all before it is played.
    world = SciWorld(types=["grow-plant"], turns=100)
    variation = Variation("grow-plant", 94)
    path = world.pool.gold_path(variation, "easy")
    place = path.index("0")
    with closing(opened(world, "grow-plant", 94)) as environment:
        for action in path[:place]:
            environment.step(action)
        assert environment.oracle(REMAINING).actions == ("0",)
        environment.step("look around")
        assert environment.oracle(REMAINING).actions == (path[place - 1],)
        environment.step(path[place - 1])
        assert environment.oracle(REMAINING).actions == ("0",)


def test_the_random_player_is_uniform_over_what_is_valid_and_understood(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("go to kitchen")
        running = environment._running
        valid = [action for action in running.valid_actions() if action not in NOT_ACTIONS]
        understood = [action for action in valid if running.understands(action)]
        assert 0 < len(understood) < len(valid)
        generator = seeding.generator(0, "player")
        drawn = Counter(environment.random(generator, REMAINING).actions[0] for _ in range(60))
    assert set(drawn) <= set(understood)
    # A player that took the first, or favoured one kind, would meet far fewer than 60 draws do on average.
    expected = len(understood) * (1 - (1 - 1 / len(understood)) ** 60)
    assert len(drawn) > 0.8 * expected


def test_the_random_player_answers_a_question_with_one_of_its_numbers(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("open door")
        drawn = {environment.random(seeding.generator(seed, "player"), REMAINING).actions[0] for seed in range(60)}
    assert drawn == {"0", "1", "2", "3", "4", "5"}


def test_looking_for_valid_actions_changes_nothing(world: SciWorld) -> None:
    def walk(ask: bool) -> list[Step]:
        with closing(opened(world, "find-plant", 3)) as environment:
            steps = []
            for action in ["go to greenhouse", "wait", "look around", "go to outside", "wait", "look around"]:
                if ask:
                    environment.random(seeding.generator(0, "player"), REMAINING)
                steps.append(environment.step(action))
        return steps

    assert walk(ask=True) == walk(ask=False)


# Episodes that share a process


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
        simulation = one_process.open(variation, "easy")
        alone += transcripts([simulation], [path])
        one_process.close(simulation)
    together = [one_process.open(variation, "easy") for variation, _ in MIXED]
    assert transcripts(together, paths) == alone
    assert len(one_process.simulators) == 1
    for simulation in together:
        one_process.close(simulation)


def test_another_process_says_the_same_to_the_same_actions(own_pool: Pool) -> None:
    variation = Variation("chemistry-mix-paint-secondary-color", 35)
    path = [*own_pool.gold_path(variation, "easy"), "look around", "inventory"]
    one, other = (own_pool.open(variation, "easy") for _ in range(2))
    assert one.simulator is not other.simulator
    assert transcripts([one], [path]) == transcripts([other], [path])


def test_each_episode_numbers_its_own_objects(one_process: Pool) -> None:
    # Two objects of one number are one to the simulator's table of names.
    first = one_process.open(Variation("find-plant", 0), "easy")
    simulator, own = first.simulator, first._own

    def next_number() -> int:
        with simulator.attending(own):
            return int(simulator._numbers.count())

    before = next_number()
    assert before > 1000
    second = Simulation(simulator, Variation("power-component", 0), "easy")
    second.step("wait1")
    assert next_number() == before


def test_episodes_on_threads_of_their_own_go_as_they_go_alone(world: SciWorld) -> None:
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


def test_episodes_spread_over_the_processes_and_closing_gives_them_back(own_pool: Pool) -> None:
    variation = Variation("find-plant", 0)
    assert own_pool.simulators == ()
    first = own_pool.open(variation, "easy")
    assert len(own_pool.simulators) == 1
    others = [own_pool.open(variation, "easy") for _ in range(2)]
    assert [simulator.episodes for simulator in own_pool.simulators] == [2, 1]
    for simulation in [first, *others]:
        own_pool.close(simulation)
    assert [simulator.episodes for simulator in own_pool.simulators] == [0, 0]


def test_a_heap_of_the_stated_size_holds_more_episodes_than_a_rollout_has(own_pool: Pool) -> None:
    # With what the interface keeps of every other task, the 22nd would be out of memory, at 11 MB each.
    simulator = own_pool.open(Variation("find-plant", 0), "easy").simulator
    simulations = [Simulation(simulator, Variation("find-plant", number), "easy") for number in range(23)]
    runtime = simulator._gateway.jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    assert (runtime.totalMemory() - runtime.freeMemory()) / len(simulations) < 2_000_000


def test_a_process_that_dies_costs_its_own_episodes_only(own_pool: Pool) -> None:
    variation = Variation("find-plant", 0)
    lost, kept = own_pool.open(variation, "easy"), own_pool.open(variation, "easy")
    assert lost.simulator is not kept.simulator
    os.kill(lost.simulator.process.pid, signal.SIGKILL)
    with pytest.raises(SimulatorLost, match="the simulator's process ended"):
        lost.step("wait1")
    with pytest.raises(SimulatorLost, match="this episode with it"):
        lost.step("wait1")
    own_pool.close(lost)
    answer = kept.step("wait1")
    assert answer.text == "You decide to wait for 1 iterations."
    # The next one is served by a fresh process.
    assert own_pool.open(variation, "easy").step("wait1") == answer


def test_a_process_that_hangs_is_ended(own_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "CALL_SECONDS", 3.0)
    hanging = own_pool.open(Variation("find-plant", 0), "easy")
    os.kill(hanging.simulator.process.pid, signal.SIGSTOP)
    with pytest.raises(SimulatorLost, match="gave no answer within 3 s"):
        hanging.step("wait1")
    assert own_pool.simulators == ()
    assert hanging.simulator.process.poll() is not None


def test_the_host_plays_an_episode_of_a_dead_process_again_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SciWorld(types=["find-non-living-thing"], processes=1)
    # A pool of the test's own: the one of this size may serve others.
    own = Pool(1)
    monkeypatch.setitem(world.__dict__, "pool", own)
    task = task_of(world, Variation("find-non-living-thing", 0))
    try:
        host = Host(world, task, 0, Patience(seconds=60, retries=1))
        first = host.reset()
        answers = []
        for action in ("open door to kitchen", "go to kitchen", "focus on cupboard", "move cupboard to red box"):
            if action.startswith("focus"):
                os.kill(own.simulators[0].process.pid, signal.SIGKILL)
            host.start([action])
            answers += host.finish()
        host.close()
        with closing(world.make(task, 0)) as environment:
            assert environment.reset() == first
            assert [environment.step(action) for action in ("open door to kitchen", "go to kitchen")] == answers[:2]
        assert answers[-1].success
    finally:
        own.end()


def test_a_fault_of_the_simulator_is_missing_data_and_not_a_failure(own_pool: Pool) -> None:
    world = SciWorld(types=["find-plant"])
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
    with pytest.raises(WorldLost, match="found no 'java' on the path"):
        Host(world, world.tasks("train", 1)[0], 0, Patience(retries=0)).reset()


# The world


@pytest.fixture(scope="module")
def running_episode() -> Iterator[SciWorldEnvironment]:
    """One for many texts: making one takes a second."""
    with closing(opened(SciWorld(types=["find-plant"]), "find-plant")) as environment:
        yield environment


@given(text=st.text(max_size=40))
@settings(max_examples=40)
def test_any_text_is_answered(running_episode: SciWorldEnvironment, text: str) -> None:
    step = running_episode.step(text)
    assert step.observation.text
    assert step.valid or not step.effective


def test_the_world_is_found_by_module_and_class() -> None:
    assert isinstance(make_world("envs.sciworld:SciWorld", {"turns": 5}), SciWorld)
