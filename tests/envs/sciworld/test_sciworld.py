"""ScienceWorld: its variations, parameters, episodes and baseline policies, on the real simulator."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sciworld_samples import opened, task_of

from envs.sciworld import SciWorld
from envs.sciworld.episode import NOT_ACTIONS, SciWorldEnvironment
from envs.sciworld.variations import COUNTS, Variation, numbers
from turnwise import seeding
from turnwise.checking.playing import play
from turnwise.world import SPLITS, Remaining, Step, make_world

pytestmark = pytest.mark.needs("java")

BOTH_KINDS = ("find-plant", "power-component")
"""Types of which one has electrical actions and the other has not, under the same simplification."""
REMAINING = Remaining(20, 1, 20)


@pytest.fixture
def world() -> SciWorld:
    return SciWorld(types=["find-plant", "power-component", "find-non-living-thing"])


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
        ({"call_seconds": 0}, "call_seconds must be a number above 0"),
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


# The baseline policies


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


def test_the_random_baseline_is_uniform_over_what_is_valid_and_understood(world: SciWorld) -> None:
    with closing(opened(world, "find-plant")) as environment:
        environment.step("go to kitchen")
        running = environment._running
        valid = [action for action in running.valid_actions() if action not in NOT_ACTIONS]
        understood = [action for action in valid if running.understands(action)]
        assert 0 < len(understood) < len(valid)
        generator = seeding.generator(0, "player")
        drawn = Counter(environment.random(generator, REMAINING).actions[0] for _ in range(60))
    assert set(drawn) <= set(understood)
    # A baseline policy that took the first, or favoured one kind, would meet far fewer than 60 draws do on average.
    expected = len(understood) * (1 - (1 - 1 / len(understood)) ** 60)
    assert len(drawn) > 0.8 * expected


def test_the_random_baseline_answers_a_question_with_one_of_its_numbers(world: SciWorld) -> None:
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
