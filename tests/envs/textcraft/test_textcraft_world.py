from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.textcraft import TextCraft
from envs.textcraft.commands import Craft, Get, Inventory, read
from envs.textcraft.episode import CraftingEnvironment
from envs.textcraft.problems import DEPTHS, CraftingProblem, find, goals, split_of
from envs.textcraft.recipes import depth, recipes, tree
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.world import SPLITS, Remaining, Step, Task

FULL = Remaining(20, 1, 20)


def environment_for(goal: str, wanted: int = 1, distractors: int = 0) -> CraftingEnvironment:
    problem = CraftingProblem(goal, wanted, 0)
    environment = CraftingEnvironment(problem, problem.recipe_list(distractors))
    environment.reset()
    return environment


def play(environment: CraftingEnvironment, *actions: str) -> list[Step]:
    return [environment.step(action) for action in actions]


def solve(environment: CraftingEnvironment, turns: int = 100) -> int | None:
    """The number of commands in which the oracle reaches the goal."""
    for turn in range(1, turns + 1):
        step = environment.step(environment.oracle(FULL).actions[0])
        assert step.valid
        if step.terminated:
            assert step.success
            return turn
    return None


# The contract


@pytest.mark.parametrize("preset", sorted(TextCraft.presets))
def test_every_preset_keeps_the_contract_and_its_turns_suffice(preset: str) -> None:
    parameters = dict(TextCraft.presets[preset])
    report = check_world(TextCraft(**parameters), count=20, parameters=parameters, oracle_success=1.0, sample=1)
    assert report.passed, report.lines()


def test_agentgyms_limits() -> None:
    world = TextCraft(**TextCraft.presets["agentgym"])
    assert world.limits.turns == 20 and world.distractors == 10 and world.depths == (1, 2, 3, 4)


# Tasks


def test_tasks_are_named_for_ever_and_their_recipes_with_them() -> None:
    # The ids, and what is drawn for them, are promised to never change within version 1 and this game's version.
    world = TextCraft(distractors=2)
    task = world.tasks("test", 2)[1]
    assert task.id == "textcraft/1/minecraft-1.19/smooth_sandstone_slab/1/0"
    assert task.seed == 1272814689001217034
    assert world.make(task, 0).reset().text == GOLDEN


GOLDEN = """Recipes:
craft 6 smooth sandstone slab using 3 smooth sandstone
craft 4 smooth sandstone stairs using 6 smooth sandstone
craft 1 acacia button using 1 acacia planks
Goal: 1 smooth sandstone slab"""


def test_goals_belong_to_one_split_and_every_split_has_every_depth() -> None:
    assert {split: [len(goals(split, [each])) for each in DEPTHS] for split in SPLITS} == {
        "train": [117, 180, 133, 26],
        "validation": [14, 20, 21, 4],
        "test": [39, 51, 39, 8],
    }
    for split in SPLITS:
        for task in TextCraft(wanted=3).tasks(split, 700):
            assert task.split == split == split_of(find(task.id).goal)


def test_a_split_has_all_of_its_goals_before_any_comes_again() -> None:
    tasks = TextCraft().tasks("validation", 2 * 59)
    rounds = [[find(task.id).goal for task in tasks[:59]], [find(task.id).goal for task in tasks[59:]]]
    assert sorted(rounds[0]) == sorted(rounds[1]) == sorted(goals("validation", DEPTHS))
    assert rounds[0] != rounds[1]
    assert len({task.id for task in tasks}) == 2 * 59


def test_a_goal_that_comes_again_has_other_distractors() -> None:
    shown = [{recipe.product for recipe in CraftingProblem("torch", 1, number).recipe_list(10)} for number in range(4)]
    needed = {"torch", "stick", "oak planks"}
    assert all(needed <= products and len(products) == 13 for products in shown)
    assert len({frozenset(products) for products in shown}) == 4


def test_the_list_is_the_tree_and_distractors_and_a_longer_one_holds_a_shorter_one() -> None:
    problem = CraftingProblem("wooden hoe", 1, 0)
    listed = {count: set(problem.recipe_list(count)) for count in (0, 4, 9)}
    assert listed[0] == set(tree("wooden hoe"))
    assert listed[0] < listed[4] < listed[9]
    assert [len(listed[count]) for count in (0, 4, 9)] == [3, 7, 12]
    used = {"oak log", "oak planks", "stick"}
    for recipe in listed[9] - listed[0]:
        assert used & {item for item, _ in recipe.ingredients}


def test_depths_and_wanted_are_what_tasks_are_drawn_from() -> None:
    tasks = TextCraft(depths=[2, 4], wanted=3).tasks("train", 400)
    assert {task.tags["depth"] for task in tasks} == {2, 4}
    assert all(task.tags["depth"] == depth(find(task.id).goal) for task in tasks)
    assert {find(task.id).wanted for task in tasks} == {1, 2, 3}
    assert {find(task.id).wanted for task in TextCraft().tasks("train", 400)} == {1}


def test_a_task_depends_on_no_parameter() -> None:
    few, many = TextCraft(distractors=0, turns=5), TextCraft(distractors=10)
    assert few.tasks("train", 50) == many.tasks("train", 50)


@pytest.mark.parametrize(
    "name",
    [
        "frozen_lake/1/4x4-p0.8/train/0",
        "textcraft/1/minecraft-1.18/torch/1/0",
        "textcraft/1/minecraft-1.19/coal/1/0",
        "textcraft/1/minecraft-1.19/oak planks/1/0",
        "textcraft/1/minecraft-1.19/torch/0/0",
        "textcraft/1/minecraft-1.19/torch/01/0",
        "textcraft/1/minecraft-1.19/torch/1",
        "textcraft/1/minecraft-1.19/torch/1/x",
        "textcraft/1/minecraft-1.19/torch/1/0/0",
    ],
)
def test_a_task_of_another_world_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"a task must be named textcraft/1/minecraft-1\.19/"):
        TextCraft().make(Task("textcraft", name, "train", 0), 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depths": []}, "depths must be a list of different whole numbers from 1 to 4"),
        ({"depths": [0]}, "depths must be"),
        ({"depths": [5]}, "depths must be"),
        ({"depths": [1, 1]}, "depths must be"),
        ({"depths": [True]}, "depths must be"),
        ({"depths": 2}, "depths must be"),
        ({"depths": "12"}, "depths must be"),
        ({"distractors": -1}, "distractors must be a whole number from 0 to 50"),
        ({"distractors": 51}, "distractors must be"),
        ({"wanted": 0}, "wanted must be a whole number from 1 to 16"),
        ({"wanted": 17}, "wanted must be"),
        ({"turns": 0}, "turns must be"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextCraft(**parameters)


# The grammar


def test_commands_are_read_in_any_case_and_with_any_spaces() -> None:
    assert read(" GET  12 Oak\nLog ") == Get("oak log", 12)
    assert read("inventory") == Inventory()
    assert read("craft 4 torch using 1 coal,1  stick") == Craft("torch", 4, {"coal": 1, "stick": 1})
    assert read("craft 4 torch using 1 stick, 1 stick") == Craft("torch", 4, {"stick": 2})


@pytest.mark.parametrize(
    "action",
    [
        "",
        "get",
        "get coal",
        "get 0 coal",
        "get -1 coal",
        "get 01 coal",
        "get 10000 coal",
        "get ٣ coal",
        "get1 coal",
        "craft 4 torch",
        "craft 4 torch using",
        "craft 4 torch using coal, stick",
        "craft 4 torch using 1 coal,",
        "craft torch using 1 coal",
        "inventory please",
        "look",
    ],
)
def test_other_texts_are_no_commands(action: str) -> None:
    assert read(action) is None


@given(
    product=st.sampled_from(sorted(recipes())),
    times=st.integers(1, 20),
)
def test_a_recipes_command_is_read_as_what_it_says(product: str, times: int) -> None:
    recipe = recipes()[product]
    used = {item: amount * times for item, amount in recipe.ingredients}
    assert read(recipe.command(times)) == Craft(product, recipe.count * times, used)


# The rules


def test_amounts_are_counted_used_up_and_kept() -> None:
    environment = environment_for("stick")
    steps = play(environment, "get 2 oak log", "craft 8 oak planks using 2 oak log", "inventory")
    assert [step.observation.text for step in steps] == [
        "Got 2 oak log.",
        "Crafted 8 oak planks.",
        "You have 8 oak planks.",
    ]
    final = environment.step("craft 4 stick using 2 oak planks")
    assert final.observation.text == "Crafted 4 stick. The goal is reached."
    assert final.observation.state == "textcraft/1/minecraft-1.19/stick/1/0 held: 6 oak planks, 4 stick"
    assert (final.terminated, final.success, dict(final.rewards)) == (True, True, {"goal": 1.0})


def test_the_goal_is_reached_only_when_it_is_held_as_often_as_wanted() -> None:
    environment = environment_for("stick", wanted=5)
    steps = play(environment, "get 1 oak log", "craft 4 oak planks using 1 oak log", "craft 4 stick using 2 oak planks")
    assert not any(step.success or step.terminated or step.rewards for step in steps)
    final = environment.step("craft 4 stick using 2 oak planks")
    assert final.success and final.terminated and final.rewards == {"goal": 1.0}


def test_nothing_can_be_played_after_the_end() -> None:
    environment = environment_for("oak planks")
    final = play(environment, "get 1 oak log", "craft 4 oak planks using 1 oak log")[-1]
    after = environment.step("get 1 oak log")
    assert final.terminated and after.terminated and after.success
    assert (after.valid, after.effective, dict(after.rewards)) == (False, False, {})
    assert after.observation.state == final.observation.state


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("get 1 stick", "That must be crafted: craft 4 stick using 2 oak planks."),
        ("get 1 torch", "That must be crafted: craft 4 torch using 1 coal, 1 stick."),
        ("get 1 diamond", "There is no such item here. You can get "),
        ("get 1 oak_log", "There is no such item here. You can get "),
        ("craft 1 cake using 3 wheat", "No recipe makes that. The recipes make "),
        ("craft 1 coal using 1 stick", "No recipe makes that. The recipes make "),
        ("craft 1 stick using 2 oak planks", "The recipe is: craft 4 stick using 2 oak planks."),
        ("craft 8 stick using 2 oak planks", "The recipe is: craft 4 stick using 2 oak planks."),
        ("craft 4 stick using 2 birch planks", "The recipe is: craft 4 stick using 2 oak planks."),
        ("craft 4 stick using 2 oak planks, 1 coal", "The recipe is: craft 4 stick using 2 oak planks."),
        ("craft 8 stick using 4 oak planks", "You are missing 2 oak planks."),
        ("craft 4 torch using 1 coal, 1 stick", "You are missing 1 coal."),
        ("eat 1 coal", "Not an action. Legal: get N ITEM; craft N ITEM using N ITEM, N ITEM; inventory."),
    ],
)
def test_what_is_impossible_is_told_why_and_changes_nothing(action: str, answer: str) -> None:
    environment = environment_for("torch")
    play(environment, "get 1 oak log", "craft 4 oak planks using 1 oak log", "craft 4 stick using 2 oak planks")
    # Held: 2 oak planks, 4 stick.
    before = environment.step("inventory").observation.state
    step = environment.step(action)
    assert step.observation.text.startswith(answer)
    assert step.observation.state == before
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})


@given(st.text())
@settings(max_examples=200)
def test_any_text_is_answered(action: str) -> None:
    environment = environment_for("torch")
    step = environment.step(action)
    assert step.observation.text and not step.terminated


def test_depth_reached_grows_with_the_longest_chain_towards_the_goal() -> None:
    environment = environment_for("torch", distractors=10)
    steps = play(
        environment,
        "get 9 oak log",
        "craft 4 oak planks using 1 oak log",
        "craft 4 oak planks using 1 oak log",
        "craft 4 stick using 2 oak planks",
        "get 1 coal",
        "craft 4 torch using 1 coal, 1 stick",
    )
    assert all(step.valid for step in steps)
    assert [step.metrics.get("depth_reached", 0.0) for step in steps] == [0, 1, 0, 1, 0, 1]


# The baseline policies


def test_the_oracle_reaches_every_goal_within_agentgyms_limit_and_in_as_few_commands_as_there_are_items() -> None:
    for goal in recipes():
        items = {item for recipe in tree(goal) for item, _ in recipe.ingredients} | {goal}
        assert solve(environment_for(goal), turns=20) == len(items)


@pytest.mark.parametrize("wanted", [7, 16])
def test_the_oracle_reaches_every_goal_however_many_are_wanted(wanted: int) -> None:
    assert all(solve(environment_for(goal, wanted)) is not None for goal in recipes())


def test_the_oracle_says_what_is_missing_and_does_the_last_of_it() -> None:
    environment = environment_for("wooden hoe")
    decisions = []
    for _ in range(4):
        decisions.append(environment.oracle(FULL))
        environment.step(decisions[-1].actions[0])
    # 2 planks and 2 sticks; the sticks are one craft of 2 planks: 4 planks, 1 log.
    assert [(decision.thought, *decision.actions) for decision in decisions] == [
        ("missing 1 wooden hoe, 2 stick, 4 oak planks, 1 oak log", "get 1 oak log"),
        ("missing 1 wooden hoe, 2 stick, 4 oak planks", "craft 4 oak planks using 1 oak log"),
        ("missing 1 wooden hoe, 2 stick", "craft 4 stick using 2 oak planks"),
        ("missing 1 wooden hoe", "craft 1 wooden hoe using 2 oak planks, 2 stick"),
    ]


def test_the_oracle_goes_on_from_whatever_a_random_baseline_has_done() -> None:
    for number, goal in enumerate(["torch", "bookshelf", "wooden hoe", "cake", "jack o lantern"]):
        environment = environment_for(goal, wanted=2, distractors=10)
        generator = seeding.generator(0, "a random start", number)
        for _ in range(15):
            step = environment.step(environment.random(generator, FULL).actions[0])
            assert step.valid and step.effective
            if step.terminated:
                break
        else:
            assert solve(environment) is not None


def test_the_random_baseline_takes_listed_amounts_and_crafts_what_it_can() -> None:
    environment = environment_for("torch")
    generator = seeding.generator(0, "player")
    assert {environment.random(generator, FULL).actions for _ in range(50)} == {("get 1 oak log",), ("get 1 coal",)}
    play(environment, "get 1 oak log", "craft 4 oak planks using 1 oak log")
    drawn = [environment.random(generator, FULL).actions[0] for _ in range(600)]
    counts = {action: drawn.count(action) for action in sorted(set(drawn))}
    assert set(counts) == {"get 1 oak log", "get 1 coal", "craft 4 stick using 2 oak planks"}
    # A third each; five standard errors of 600 draws are 58.
    assert all(abs(count - 200) < 58 for count in counts.values())
