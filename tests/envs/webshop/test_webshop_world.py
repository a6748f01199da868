from itertools import combinations
from typing import Any

import pytest

from envs.webshop import WebShop
from envs.webshop.shop import split_of
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.world import SPLITS, Remaining, Task


def play(world: WebShop, task: Task, baseline: str) -> tuple[bool, float]:
    """Success and score of one episode under the world's limit."""
    environment = world.make(task, 0)
    environment.reset()
    generator = seeding.generator(1, "test player", task.id)
    score = 0.0
    for left in range(world.limits.turns, 0, -1):
        decision = environment.decide(baseline, generator, Remaining(left, 1, left))
        step = environment.step(decision.actions[0])
        score += step.rewards.get("score", 0.0)
        if step.terminated:
            return step.success, score
    return False, score


@pytest.mark.parametrize("parameters", [*WebShop.presets.values(), {"turns": 4, "results_per_page": 1}])
def test_the_world_keeps_the_contract(parameters: dict[str, Any]) -> None:
    report = check_world(WebShop(**parameters), parameters=parameters, oracle_success=1.0, count=8, sample=1)
    assert report.passed, report.lines()


def test_the_oracle_meets_every_goal_and_chance_meets_none() -> None:
    world = WebShop()
    tasks = world.tasks("test", 300)
    assert all(play(world, task, "oracle") == (True, 1.0) for task in tasks)
    scores = [play(world, task, "random") for task in tasks]
    assert not any(success for success, _ in scores)
    assert sum(score for _, score in scores) / len(scores) < 0.02


def test_tasks_are_named_for_ever() -> None:
    # Ids and instructions are promised to never change within version 1.
    world = WebShop()
    task = world.tasks("test", 1)[0]
    assert task.id == "webshop/1/own-4000/B2344:2"
    assert world.make(task, 0).reset().text == (
        "Find me escape proof, elevated harness, color navy, size small, price at most $60.\nSearch the shop."
    )


def test_a_task_set_is_a_prefix_of_a_longer_one_and_goals_are_apart() -> None:
    world = WebShop()
    shown: dict[str, set[str]] = {}
    for split in SPLITS:
        tasks = world.tasks(split, 200)
        assert world.tasks(split, 20) == tasks[:20]
        assert all(split_of(task.id.rsplit("/", 1)[1].split(":")[0]) == split for task in tasks)
        shown[split] = {world.make(task, 0).reset().text for task in tasks}
    for one, other in combinations(SPLITS, 2):
        assert not shown[one] & shown[other]


def test_goals_that_take_too_many_turns_are_left_out() -> None:
    quick, patient = WebShop(turns=4), WebShop(turns=30)
    ids = [task.id for task in quick.tasks("test", 100)]
    # In four turns there is time to choose one option at most.
    assert all(task.tags["options"] <= 1 for task in quick.tasks("test", 100))
    all_ids = [task.id for task in patient.tasks("test", 1000)]
    assert [name for name in all_ids if name in set(ids)] == [name for name in ids if name in set(all_ids)]


def test_too_many_tasks_are_refused_with_the_number_that_there_is() -> None:
    world = WebShop(products=100)
    with pytest.raises(ValueError, match=r"count must be at most (\d+) for the validation split") as refusal:
        world.tasks("validation", 1000)
    available = int(str(refusal.value).split("at most ")[1].split()[0])
    assert len(world.tasks("validation", available)) == available > 5


def test_a_task_of_another_shop_is_refused() -> None:
    task = WebShop(products=100).tasks("train", 1)[0]
    with pytest.raises(ValueError, match="a task of this shop must be named like 'webshop/1/own-4000/"):
        WebShop().make(task, 0)
    with pytest.raises(ValueError, match="must be named like"):
        WebShop().make(Task("webshop", "B0000:0", "train", 0), 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"products": 9}, "products must be"),
        ({"turns": 2}, "turns must be"),
        ({"turns": 5.0}, "turns must be"),
        ({"results_per_page": 0}, "results_per_page must be"),
        ({"results_per_page": 51}, "results_per_page must be"),
        ({"description": 1}, "description must be true or false; found 1"),
        ({"repeat_goal": "yes"}, "repeat_goal must be true or false"),
        ({"catalogue": __file__}, "catalogue and goals must be given together.*; goals is not"),
        ({"goals": __file__}, "catalogue and goals must be given together.*; catalogue is not"),
        ({"attributes": __file__}, "catalogue and goals must be given together"),
        ({"catalogue": "/nowhere", "goals": __file__}, "catalogue must be the path of a file; found '/nowhere'"),
        ({"catalogue": __file__, "goals": 3}, "goals must be the path of a file; found 3"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WebShop(**parameters)


def test_the_grammar_names_the_verbs() -> None:
    assert all(f"{verb}[" in WebShop().grammar for verb in WebShop.verbs or ())
    assert WebShop().attribution() is None
