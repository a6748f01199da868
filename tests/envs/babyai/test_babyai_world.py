from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.actions import Actions

from envs.babyai import BabyAI, adviser, levels
from envs.babyai.adviser import Adviser
from envs.babyai.episode import ACTIONS, LevelEnvironment
from envs.babyai.levels import REFUSED, content, playable, seed_of_split, split_of, start
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.world import SPLITS, Remaining, Split, Step, Task

FULL = Remaining(20, 1, 20)


def environment_of(level: str, number: int = 0, *, go_to: bool = False) -> LevelEnvironment:
    world = BabyAI(levels=[level], go_to=go_to)
    environment = world.make(world.tasks("train", number + 1)[number], 0)
    environment.reset()
    return environment


def play_oracle(environment: LevelEnvironment, turns: int) -> list[Step]:
    steps: list[Step] = []
    while len(steps) < turns and not (steps and (steps[-1].terminated or steps[-1].truncated)):
        steps.append(environment.step(environment.oracle(FULL).actions[0]))
    return steps


# The contract


def test_it_keeps_the_contract_with_walks_as_well() -> None:
    report = check_world(BabyAI(go_to=True), count=10, parameters={"go_to": True}, oracle_success=1.0, sample=1)
    assert report.passed, report.lines()


def test_agentgyms_limits_and_levels() -> None:
    world = BabyAI(**BabyAI.presets["agentgym"])
    # Of its forty levels five are refused.
    assert world.limits.turns == 20 and world.go_to and len(world.levels) == 35
    assert BabyAI(**BabyAI.presets["one-room"]).levels == ("GoToRedBallNoDists",)


# Levels and tasks


def test_tasks_are_named_for_ever_and_their_starts_with_them() -> None:
    # The ids, and what the package draws for them, are promised to never change within version 1.
    world = BabyAI()
    task = world.tasks("test", 8)[7]
    assert task.id == "babyai/1/GoToLocal/test/1"
    assert task.seed == 5544823988840927757
    assert world.make(task, 0).reset().text == (
        "Mission: go to a green box\nYou see: a green box 3 right\nWalls: 1 forward, 1 left\nYou carry: nothing"
    )


def test_levels_take_turns_and_a_task_does_not_depend_on_the_others() -> None:
    tasks = BabyAI(levels=["GoToObj", "OpenDoor"], turns=9).tasks("train", 6)
    assert [task.tags["level"] for task in tasks] == ["GoToObj", "OpenDoor"] * 3
    assert tasks[0::2] == BabyAI(levels=["GoToObj"], go_to=True).tasks("train", 3)


def test_all_of_the_packages_levels_are_known_and_some_refused() -> None:
    named = [name for name in gymnasium.registry if name.startswith("BabyAI-")]
    assert len(named) == 96 == len(playable()) + len(REFUSED)
    assert playable()["GoToObjS6"] == "BabyAI-GoToObjS6-v1"
    with pytest.raises(
        ValueError, match=r"levels must be ones that can be mastered; found 'KeyInBox': .* opens no box"
    ):
        BabyAI(levels=["GoToLocal", "KeyInBox"])


@given(seed=st.integers(0, 2**63 - 1), split=st.sampled_from(SPLITS), level=st.sampled_from(["GoToObjS4", "OpenDoor"]))
@settings(max_examples=20)
def test_a_seed_is_found_that_draws_a_start_of_the_split(seed: int, split: Split, level: str) -> None:
    found = seed_of_split(level, split, seed)
    assert split_of(start(level, found)) == split
    assert content(start(level, found)) == content(start(level, found))


def test_no_start_is_in_two_splits_even_where_there_are_few() -> None:
    # GoToObjS4 is a room of two by two cells.
    world = BabyAI(levels=["GoToObjS4"])
    shown: dict[Split, set[tuple[str, str]]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for task in world.tasks(split, 150):
            first = world.make(task, 0).reset()
            shown[split].add((first.text.splitlines()[0], first.state or ""))
    assert len(shown["train"]) < 150  # some come up more than once
    assert not shown["train"] & shown["validation"]
    assert not shown["train"] & shown["test"]
    assert not shown["validation"] & shown["test"]


def test_a_level_without_starts_of_a_split_is_refused_rather_than_searched_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "MAXIMUM_DRAWS", 0)
    with pytest.raises(ValueError, match="a level must have test starts; found none of GoToObj in 0 draws"):
        seed_of_split("GoToObj", "test", 12345)


def test_levels_are_drawn_alike_on_many_threads_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    # This level throws away most of its layouts, and says so on standard output.
    seeds = range(24)
    alone = [content(start("GoToSeqS5R2", seed)) for seed in seeds]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda seed: content(start("GoToSeqS5R2", seed)), seeds))
    assert together == alone
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"levels": []}, "levels must be a list of different names"),
        ({"levels": "GoToLocal"}, "levels must be a list of different names"),
        ({"levels": ["GoToLocal", "GoToLocal"]}, "levels must be a list of different names"),
        ({"levels": ["GoToMoon"]}, "levels must be of ActionObjDoor, .*; found 'GoToMoon'"),
        ({"levels": ["UnlockToUnlock"]}, "levels must be ones that can be mastered; .* goes round in circles"),
        ({"turns": 0}, "turns must be a whole number from 1 to 2000"),
        ({"go_to": 1}, "go_to must be true or false; found 1"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BabyAI(**parameters)


@pytest.mark.parametrize(
    "name", ["frozen_lake/1/x", "babyai/2/GoToLocal/train/0", "babyai/1/KeyInBox/train/0", "babyai/1/"]
)
def test_a_task_of_another_world_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a task must be named babyai/1/LEVEL/SPLIT/NUMBER"):
        BabyAI().make(Task("babyai", name, "train", 0), 0)


def test_walks_are_told_of_only_where_there_are_any() -> None:
    assert "go to COLOR THING" not in BabyAI().grammar
    assert "go to COLOR THING" in BabyAI(go_to=True).grammar


@pytest.mark.parametrize("level", list(playable()))
def test_every_level_can_be_played(level: str) -> None:
    world = BabyAI(levels=[level], go_to=True)
    for number, task in enumerate(world.tasks("train", 3)):
        environment = world.make(task, 0)
        generator = seeding.generator(0, "player", number)
        for baseline in ("oracle", "random", "random", "oracle", "random", "oracle"):
            step = environment.step(environment.decide(baseline, generator, FULL).actions[0])
            assert step.valid and step.observation.text.count("\n") >= 3
            if step.terminated:
                break


# The rules


def test_the_reward_is_given_once_and_counts_the_steps() -> None:
    environment = environment_of("PickupLoc")
    steps = play_oracle(environment, 64)
    # A room of 8 by 8 cells: the level allows 64 steps.
    assert [dict(step.rewards) for step in steps[:-1]] == [{}] * (len(steps) - 1)
    assert steps[-1].rewards["mission"] == pytest.approx(1 - 0.9 * len(steps) / 64)
    assert steps[-1].success and steps[-1].terminated and not steps[-1].truncated
    after = environment.step("move forward")
    assert (after.valid, after.success, after.terminated, dict(after.rewards)) == (False, True, True, {})
    assert after.observation.state == steps[-1].observation.state


def test_only_what_is_played_counts_as_a_step() -> None:
    plain, disturbed = environment_of("PickupLoc"), environment_of("PickupLoc")
    first = plain.oracle(FULL).actions[0]
    assert not disturbed.step("jump").valid
    assert plain.step(first) == disturbed.step(first)
    assert play_oracle(plain, 64) == play_oracle(disturbed, 64)


def test_turning_round_is_coming_back() -> None:
    environment = environment_of("GoToRedBallNoDists", 3)
    before = environment.step("drop")
    steps = [environment.step("turn left") for _ in range(4)]
    assert all(step.effective for step in steps)
    assert len({step.observation.state for step in steps}) == 4
    assert steps[-1].observation.state == before.observation.state


def test_what_changes_nothing_is_valid_and_says_so() -> None:
    environment = environment_of("GoToRedBallNoDists", 3)
    first = environment.reset()
    for action in ("drop", "pick up", "toggle"):
        step = environment.step(action)
        assert step.valid and not step.effective
        assert step.observation.text == "That changed nothing.\n" + first.text
        assert step.observation.state == first.state


def test_a_thing_is_picked_up_carried_and_put_down() -> None:
    environment = environment_of("PutNextLocal", go_to=True)
    steps = play_oracle(environment, 40)
    carried = [step.observation.text.splitlines()[-1] for step in steps]
    assert steps[-1].success
    mission = environment.reset().text.splitlines()[0]
    name = " ".join(mission.removeprefix("Mission: put ").split(" next to ")[0].split()[1:])
    assert f"You carry: a {name}" in carried and carried[-1] == "You carry: nothing"


def test_the_levels_own_limit_cuts_an_episode_off() -> None:
    # GoToObjS4 is 4 by 4 cells with its walls: 16 steps.
    environment = environment_of("GoToObjS4")
    steps = [environment.step("drop") for _ in range(16)]
    assert [step.truncated for step in steps] == [False] * 15 + [True]
    assert not steps[-1].terminated and not steps[-1].success and not steps[-1].rewards
    assert steps[-1].observation.text.startswith("The level allows no more steps.")
    assert environment.step("drop").observation.text.startswith("The episode is over.")


def test_a_strict_level_ends_when_the_wrong_thing_is_picked_up() -> None:
    world = BabyAI(levels=["PickupDistDebug"], go_to=True)
    for task in world.tasks("train", 20):
        environment = world.make(task, 0)
        mission, things = environment.reset().text.splitlines()[:2]
        names = [" ".join(thing.split()[1:3]) for thing in things.removeprefix("You see: ").split(", ")]
        wrong = [name for name in names if not set(mission.split()[-2:]) & set(name.split())]
        if wrong and environment.step(f"go to {wrong[0]}").valid:
            step = environment.step("pick up")
            assert step.terminated and not step.success and step.rewards == {"mission": 0.0}
            assert step.observation.text.startswith("The mission has failed.")
            return
    pytest.fail("no start of twenty shows a wrong thing")


@pytest.mark.parametrize("action", ["turn left", " TURN  Left\n", "Turn left"])
def test_actions_are_read_in_any_case_and_with_any_spaces(action: str) -> None:
    assert environment_of("GoToObj").step(action) == environment_of("GoToObj").step("turn left")


@given(st.text())
@settings(max_examples=100)
def test_any_other_text_is_answered_and_changes_nothing(action: str) -> None:
    if " ".join(action.lower().split()) in ACTIONS:
        return
    environment = ONE
    before = environment.reset()
    step = environment.step(action)
    assert step.observation.text.startswith("Not an action. Legal: turn left, turn right, move forward, pick up, drop")
    assert step.observation.state == before.state
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})


ONE = environment_of("GoToObj")


# Walks


def test_a_walk_is_the_steps_that_it_takes() -> None:
    # Of the first starts, those in which a thing is some way off.
    walked = 0
    for number in range(8):
        by_walk, by_steps = environment_of("PickupLoc", number, go_to=True), environment_of("PickupLoc", number)
        mission = by_walk.reset().text.splitlines()[0].partition(" on your ")[0]
        step = by_walk.step(f"go to the {mission.split(maxsplit=4)[-1]}")
        if not step.valid:
            continue
        walked += 1
        for action in by_walk._played:
            last = by_steps.step({number: name for name, number in ACTIONS.items()}[action])
        assert last == step
    assert walked >= 2


def test_a_walk_to_nothing_is_refused_and_told_what_there_is() -> None:
    environment = environment_of("GoToRedBallNoDists", 3, go_to=True)
    step = environment.step("go to green key")
    assert not step.valid and not step.effective
    assert step.observation.text.startswith("There is no such thing in view, or no free way to it. You can ")
    assert environment.step("go").observation.text.startswith("Not an action. Legal: turn left")
    assert not environment_of("GoToRedBallNoDists", 3).step("go to red ball").valid


def test_walks_that_the_random_baseline_offers_are_accepted() -> None:
    generator = seeding.generator(0, "player")
    offered = set()
    for number in range(30):
        environment = environment_of("GoToLocal", number, go_to=True)
        action = environment.random(generator, FULL).actions[0]
        offered.add(action.split()[0])
        assert environment.step(action).valid
    assert "go" in offered


# The baseline policies


def test_the_oracle_says_where_the_thing_is_that_it_is_about() -> None:
    environment = environment_of("PickupLoc", 1)
    shown, decisions = environment.reset(), []
    for _ in range(20):
        decisions.append(environment.oracle(FULL))
        thought = decisions[-1].thought
        if thought.startswith("no "):
            assert f" {thought.removeprefix('no ').removesuffix(' in view')} " not in shown.text.splitlines()[1]
        elif not thought.endswith("ahead"):
            assert thought in shown.text
        step = environment.step(decisions[-1].actions[0])
        shown = step.observation
        if step.terminated:
            break
    assert step.success
    assert decisions[-1].thought.endswith("ahead") and decisions[-1].actions == ("pick up",)


def test_the_oracle_says_the_same_whenever_it_is_asked() -> None:
    always, late = environment_of("OpenDoor", 2), environment_of("OpenDoor", 2)
    generator = seeding.generator(0, "moves")
    for _ in range(12):
        always.oracle(FULL)
        action = always.random(generator, FULL).actions[0]
        if always.step(action).terminated | late.step(action).terminated:
            break
    assert late.oracle(FULL) == always.oracle(FULL) == late.oracle(FULL)


def test_walks_save_the_oracle_turns_and_no_step() -> None:
    turns = {True: 0, False: 0}
    for number in range(12):
        rewards = []
        for go_to in (True, False):
            steps = play_oracle(environment_of("OpenDoor", number, go_to=go_to), 40)
            turns[go_to] += len(steps)
            rewards.append(steps[-1].rewards)
        # Both pass the same places in the same number of the package's steps.
        assert rewards[0] == rewards[1]
    assert turns[True] < 0.7 * turns[False]


def test_the_oracle_walks_to_what_it_is_after_as_soon_as_it_sees_it() -> None:
    world = BabyAI(levels=["GoToRedBallNoDists"], go_to=True)
    beside = 0
    for task in world.tasks("train", 40):
        environment = world.make(task, 0)
        things = environment.reset().text.splitlines()[1]
        if "red ball" in things:
            beside += "left" in things or "right" in things
            assert environment.oracle(FULL).actions == ("go to red ball",)
            assert environment.step("go to red ball").success
    assert beside > 10


@pytest.mark.parametrize("go_to", [False, True])
def test_the_oracle_goes_on_from_whatever_a_random_baseline_has_done(go_to: bool) -> None:
    won = 0
    for number in range(30):
        environment = environment_of("PickupLoc", number, go_to=go_to)
        generator = seeding.generator(0, "a random start", number)
        for _ in range(8):
            step = environment.step(environment.random(generator, FULL).actions[0])
            if step.terminated:
                break
        won += step.success or play_oracle(environment, 50)[-1].success
    # A box that was opened is gone, and its mission with it: seldom in eight actions.
    assert won >= 27


def test_a_bot_that_goes_in_circles_is_stopped_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "REFUSED", {})
    playable.cache_clear()
    try:
        # On this start the package's own bot does not return from its second question.
        drawn = start("UnlockToUnlock", 4)
        bot = adviser._Bot(drawn)
        first = bot.next_action(None)
        drawn.step(first)
        assert bot.next_action(first) == Actions.done
        assert bot.stack.additions > adviser.MOST_PLANS
        advised = Adviser("UnlockToUnlock", 4).advise([first])
        assert advised is not None and advised.action != Actions.done
    finally:
        playable.cache_clear()


def test_the_random_baseline_is_uniform_over_the_six_actions() -> None:
    environment = environment_of("GoToLocal")
    generator = seeding.generator(0, "player")
    drawn = [environment.random(generator, FULL).actions[0] for _ in range(1200)]
    # 200 of each are expected; five standard errors are 65.
    assert all(abs(drawn.count(action) - 200) < 65 for action in ACTIONS)
