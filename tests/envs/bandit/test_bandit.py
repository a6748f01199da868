from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.bandit import Bandit
from envs.bandit.names import THEMES, split_of_pair
from envs.bandit.world import BanditEnvironment
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.world import SPLITS, Remaining, Step, Task, make_world

ONE_PULL = Remaining(1, 1, 1)


def environment_with(steady: str, daring: str, seed: int = 0, **parameters: Any) -> BanditEnvironment:
    world = Bandit(**parameters)
    environment = BanditEnvironment(world, Task(world.name, "by hand", "train", 0), steady, daring, True, seed)
    environment.reset()
    return environment


def arms(world: Bandit, task: Task) -> set[str]:
    text = world.make(task, 0).reset().text
    return set(text.removeprefix("Arms: ").split(", "))


# Names and tasks


def test_tasks_are_named_for_ever_and_their_arms_with_them() -> None:
    # The task ids, and what numpy's generator draws for them, are promised to never change within version 1.
    world = Bandit()
    task = world.tasks("train", 4)[3]
    assert task.id == "bandit/1/professions-unseen-names/train/3"
    assert task.seed == 4775657866754565497
    assert world.make(task, 0).reset().text == "Arms: Novelist, Plumber"


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_name_is_in_two_lists(theme: str) -> None:
    names = [
        name for split, kind in product(SPLITS, ("steady", "daring")) for name in getattr(THEMES[theme][split], kind)
    ]
    assert len(names) == len(set(names)) > 30
    # The action is read as `text.strip().capitalize()`.
    assert all(name == name.strip().capitalize() for name in names)


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_no_name_of_a_split_is_seen_in_another(theme: str) -> None:
    world = Bandit(theme=theme)
    seen = {split: set().union(*(arms(world, task) for task in world.tasks(split, 400))) for split in SPLITS}
    assert not seen["train"] & seen["validation"] and not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]
    for split in SPLITS:
        assert seen[split] == {*THEMES[theme][split].steady, *THEMES[theme][split].daring}


@pytest.mark.parametrize("theme", sorted(THEMES))
def test_where_only_pairs_are_unseen_every_name_is_known_from_training_and_no_pair_is(theme: str) -> None:
    world = Bandit(theme=theme, unseen="pairs")
    pairs = {split: {frozenset(arms(world, task)) for task in world.tasks(split, 1500)} for split in SPLITS}
    known = set().union(*pairs["train"])
    assert set().union(*pairs["test"]) <= known and set().union(*pairs["validation"]) <= known
    assert not pairs["train"] & pairs["test"] and not pairs["train"] & pairs["validation"]
    assert not pairs["validation"] & pairs["test"]


def test_about_a_tenth_of_the_pairs_is_held_out_twice() -> None:
    names = THEMES["professions"]["train"]
    splits = [split_of_pair(pair) for pair in product(names.steady, names.daring)]
    assert len(splits) == 256
    assert 10 < splits.count("test") < 45 and 10 < splits.count("validation") < 45


def test_a_pair_is_of_one_steady_and_one_daring_name_and_either_may_come_first() -> None:
    world = Bandit()
    tasks = world.tasks("train", 300)
    names = THEMES["professions"]["train"]
    for task in tasks:
        first, second = world.make(task, 0).reset().text.removeprefix("Arms: ").split(", ")
        steady, daring = (first, second) if task.tags["first"] == "steady" else (second, first)
        assert steady in names.steady and daring in names.daring
    share = sum(task.tags["first"] == "steady" for task in tasks) / len(tasks)
    # Three standard errors of a half over 300 draws are 0.087.
    assert abs(share - 0.5) < 0.087


# Payoffs


def test_the_steady_arm_pays_a_little_every_time() -> None:
    for seed in range(50):
        step = environment_with("Clerk", "Pirate", seed).step("Clerk")
        assert step.rewards == {"payoff": 0.1}
        assert step.terminated and step.valid and step.effective and not step.success
        assert step.observation.text == "Clerk paid 0.1"


def test_the_daring_arm_pays_much_one_time_in_four() -> None:
    steps = [environment_with("Clerk", "Pirate", seed).step("Pirate") for seed in range(2000)]
    assert all(step.success and step.terminated for step in steps)
    payoffs = [step.rewards["payoff"] for step in steps]
    assert set(payoffs) == {0.0, 1.0}
    # Three standard errors of a quarter over 2,000 draws are 0.029.
    assert abs(sum(payoffs) / 2000 - 0.25) < 0.029


def test_the_members_of_a_group_draw_their_own_payoffs() -> None:
    world = Bandit()
    (task,) = world.tasks("train", 1)

    def payoff(seed: int) -> float:
        environment = world.make(task, seed)
        environment.reset()
        return environment.step(environment.oracle(ONE_PULL).actions[0]).rewards["payoff"]

    assert [payoff(seed) for seed in range(40)] == [payoff(seed) for seed in range(40)]
    assert {payoff(seed) for seed in range(40)} == {0.0, 1.0}


def test_the_payoffs_are_parameters() -> None:
    world = {"low_payoff": 0.4, "high_payoff": 0.8, "high_probability": 1.0}
    assert environment_with("Clerk", "Pirate", **world).step("Clerk").rewards == {"payoff": 0.4}
    assert environment_with("Clerk", "Pirate", **world).step("Pirate").rewards == {"payoff": 0.8}


@pytest.mark.parametrize(
    ("parameters", "better"),
    [
        ({}, "Pirate"),
        ({"low_payoff": 0.3}, "Clerk"),
        ({"swapped": True}, "Clerk"),
        ({"swapped": True, "low_payoff": 0.3}, "Pirate"),
    ],
)
def test_the_better_arm_is_the_one_of_the_higher_expectation(parameters: dict[str, Any], better: str) -> None:
    decision = environment_with("Clerk", "Pirate", **parameters).oracle(ONE_PULL)
    assert (decision.thought, decision.actions) == (f"{better} pays more", (better,))
    for arm in ("Clerk", "Pirate"):
        assert environment_with("Clerk", "Pirate", **parameters).step(arm).success == (arm == better)


# The environment


@pytest.mark.parametrize("action", ["pirate", " PIRATE\n", "Pirate"])
def test_names_are_read_in_any_case_and_stripped(action: str) -> None:
    assert environment_with("Clerk", "Pirate").step(action).success


@given(st.text())
@settings(max_examples=200)
def test_any_other_text_is_answered_and_changes_nothing(action: str) -> None:
    if action.strip().capitalize() in ("Clerk", "Pirate"):
        return
    environment = environment_with("Clerk", "Pirate")
    before = environment.reset()
    step = environment.step(action)
    assert step.observation.text == "Not an arm. Legal: Clerk or Pirate.\nArms: Clerk, Pirate"
    assert step.observation.state == before.state
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})


def test_there_is_no_second_pull() -> None:
    environment = environment_with("Clerk", "Pirate")
    environment.step("Pirate")
    again = environment.step("Clerk")
    assert again == Step(again.observation, terminated=True, valid=False, effective=False, success=True)
    assert again.observation.text.startswith("Pirate paid")


# The baseline policies and the world


def test_the_random_baseline_is_uniform_over_the_arms() -> None:
    environment = environment_with("Clerk", "Pirate")
    generator = seeding.generator(0, "player")
    pulls = [environment.random(generator, ONE_PULL).actions for _ in range(1000)]
    assert set(pulls) == {("Clerk",), ("Pirate",)}
    # Three standard errors of a half over 1,000 draws are 0.047.
    assert abs(pulls.count(("Clerk",)) / 1000 - 0.5) < 0.047


def test_the_oracle_always_succeeds_and_the_random_baseline_half_of_the_time() -> None:
    world = Bandit()
    tasks = world.tasks("test", 500)
    assert all(play(world, task, 0, "oracle").success for task in tasks)
    # Three standard errors of a half over 500 draws are 0.067.
    assert abs(sum(play(world, task, 0, "random").success for task in tasks) / 500 - 0.5) < 0.067


@pytest.mark.parametrize("parameters", [{"theme": "animals", "unseen": "pairs"}, Bandit.presets["ragen-swapped"]])
def test_the_world_keeps_the_contract(parameters: dict[str, Any]) -> None:
    report = check_world(Bandit(**parameters), parameters=parameters, oracle_success=Bandit.oracle_success)
    assert report.passed, report.lines()


@pytest.mark.parametrize(
    ("preset", "low", "better"),
    [("ragen", 0.1, "Pirate"), ("ragen-paper", 0.15, "Pirate"), ("ragen-swapped", 0.1, "Clerk")],
)
def test_the_presets_are_ragens_settings(preset: str, low: float, better: str) -> None:
    world = Bandit(**Bandit.presets[preset])
    assert (world.low_payoff, world.high_payoff, world.high_probability) == (low, 1.0, 0.25)
    assert environment_with("Clerk", "Pirate", **Bandit.presets[preset]).oracle(ONE_PULL).actions == (better,)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"theme": "plants"}, "theme must be one of professions, animals; found 'plants'"),
        ({"unseen": "all"}, "unseen must be one of names, pairs; found 'all'"),
        ({"low_payoff": -1}, "low_payoff must be a number from 0 to 1; found -1"),
        ({"high_payoff": "1"}, "high_payoff must be a number from 0 to 1"),
        ({"high_probability": 2}, "high_probability must be a number from 0 to 1; found 2"),
        ({"low_payoff": 0.25}, "one arm must pay more on average; found .* 0.25"),
        ({"swapped": 1}, "swapped must be true or false; found 1"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bandit(**parameters)


def test_a_task_of_other_names_is_refused() -> None:
    (task,) = Bandit(theme="animals").tasks("train", 1)
    with pytest.raises(ValueError, match="bandit/1/professions-unseen-names/"):
        make_world("envs.bandit:Bandit", {}).make(task, 0)
