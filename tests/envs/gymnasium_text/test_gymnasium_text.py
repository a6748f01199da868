"""Any Gymnasium text world: its episodes, tasks, baseline policies and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gymnasium_text import GymnasiumText
from envs.gymnasium_text.settings import KNOWN
from turnwise import seeding
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.world import SPLITS, Environment, Remaining, ScriptedAction, Task

TAXI_PRESETS = {"taxi": {"id": "Taxi-v4"}, "cliff-walking": {"id": "CliffWalking-v1"}}
PLENTY = Remaining(20, 1, 20)


class Doors(gymnasium.Env):  # type: ignore[misc]
    """One of two doors is the right one, by the seed; behind it the wind says a number, by the noise."""

    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(2)
    observation_space: ClassVar[Any] = gymnasium.spaces.Text(100)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(2))
        return f"the light is over door {self.right}", {}

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.wind = int(self.np_random.integers(1000))
        return f"the wind says {self.wind}", 0.5, action == self.right, False, {"won": self.wind >= 0}


class Jammed(Doors):
    """The same with a lock that jams at the second door, for good."""

    jammed = False
    closed = 0

    def step(self, action: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.jammed = self.jammed or action == 1
        if self.jammed:
            raise RuntimeError("the lock jams")
        return super().step(action)

    def close(self) -> None:
        Jammed.closed += 1


class Vector(Doors):
    """The same with an array for an observation."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([self.right, 7]), {}


class Named(Doors):
    """The same with named parts."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"light": np.int64(self.right), "other": 3.5}, {}


DOORS: dict[str, Any] = {
    "id": "TurnwiseDoors-v0",
    "instruction": "Go through the door with the light.",
    "action_values": {"Second": 1, "First": 0},
    "success_info": "won",
    "view": "text",
    "turns": 5,
}


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    made: dict[str, Any] = {"TurnwiseDoors-v0": Doors, "TurnwiseVector-v0": Vector, "TurnwiseNamed-v0": Named}
    made["TurnwiseJammed-v0"] = Jammed
    for name, entry_point in made.items():
        gymnasium.register(id=name, entry_point=entry_point, max_episode_steps=3)
    yield
    for name in made:
        del gymnasium.registry[name]


def opened(world: GymnasiumText, seed: int = 0, number: int = 0) -> Environment:
    environment = world.make(world.tasks("train", number + 1)[number], seed)
    environment.reset()
    return environment


# Episodes


@pytest.mark.parametrize("parameters", [*TAXI_PRESETS.values(), {"actions_per_turn": 5, "turns": 5}])
def test_the_world_keeps_the_contract(parameters: dict[str, Any]) -> None:
    world = GymnasiumText(**parameters)
    report = check_world(world, parameters=parameters, count=8, oracle_success=1.0, sample=1)
    assert report.passed, report.lines()


def test_the_slippery_lake_keeps_the_contract_and_its_oracle_wins_as_often_as_is_known() -> None:
    parameters = GymnasiumText.presets["frozen-lake"]
    report = check_world(GymnasiumText(**parameters), parameters=parameters, count=20, oracle_success=0.4, sample=1)
    assert report.passed, report.lines()
    world = GymnasiumText(**parameters)
    won = sum(play(world, task, 1, "oracle").success for task in world.tasks("test", 400)) / 400
    # The best policy of 100 actions wins 0.74 of the time; three standard errors over 400 episodes are 0.066.
    assert abs(won - 0.74) < 0.066


def test_the_taxi_is_described_driven_and_paid() -> None:
    world = GymnasiumText()
    task = world.tasks("train", 4)[3]
    # The task ids, and what numpy's generator draws for them, are promised to never change within version 1.
    assert (task.id, task.seed) == ("gymnasium/1/Taxi-v4/starts-apart/train/3", 1852050793734924051)
    environment = world.make(task, 0)
    assert environment.reset().text == "taxi 0 3, passenger yellow, goal blue"
    assert environment.oracle(PLENTY) == ScriptedAction("South is best", ("South",))
    # Down, left and down to yellow, pick up, up, right and down to blue, drop off: 16 actions, 20 points for the last.
    way = ["South"] * 2 + ["West"] * 3 + ["South"] * 2 + ["Pickup"]
    way += ["North"] * 2 + ["East"] * 3 + ["South"] * 2 + ["Dropoff"]
    steps = [environment.step(action) for action in way]
    assert steps[7].observation.text == "taxi 4 0, passenger in the taxi, goal blue"
    assert [step.rewards["reward"] for step in steps] == [-1.0] * 15 + [20.0]
    assert [step.rewards["solved"] for step in steps] == [0.0] * 15 + [1.0]
    assert [step.success for step in steps] == [step.terminated for step in steps] == [False] * 15 + [True]


def test_a_move_against_a_wall_is_valid_and_changes_nothing() -> None:
    world = GymnasiumText()
    environment = world.make(world.tasks("train", 4)[3], 0)
    before = environment.reset()
    step = environment.step("North")
    assert step.valid and not step.effective and not step.terminated
    assert step.observation == before and dict(step.rewards) == {"reward": -1.0, "solved": 0.0}


def test_the_lake_is_shown_as_gymnasium_draws_it() -> None:
    environment = opened(GymnasiumText(id="FrozenLake-v1", arguments={"is_slippery": False}))
    step = environment.step("right")
    assert step.observation.text == "  (Right)\nS<F>FF\nFHFH\nFFFH\nHFFG"
    assert step.observation.state == "1"
    assert (step.valid, step.effective, dict(step.rewards)) == (True, True, {"reward": 0.0, "solved": 0.0})
    blocked = environment.step("Up")
    assert blocked.valid and not blocked.effective


@pytest.mark.parametrize("action", ["hit", " HIT\n", "Hit"])
def test_actions_are_read_in_any_case_and_stripped(action: str) -> None:
    assert opened(GymnasiumText(id="Blackjack-v1")).step(action).valid


@given(st.text())
@settings(max_examples=100)
def test_any_other_text_is_answered_and_changes_nothing(action: str) -> None:
    if action.strip().casefold() in ("stick", "hit"):
        return
    world = GymnasiumText(id="Blackjack-v1")
    plain, disturbed = opened(world), opened(world)
    text = plain.reset().text
    disturbed.reset()
    step = disturbed.step(action)
    assert step.observation.text == f"Not an action. Legal: Stick or Hit.\n{text}"
    assert (step.valid, step.effective, step.terminated, dict(step.rewards)) == (False, False, False, {})
    assert disturbed.step("hit") == plain.step("hit")


def test_a_text_world_of_somebodys_own_is_played_by_configuration_alone() -> None:
    world = GymnasiumText(**DOORS)
    assert (world.instruction, world.grammar) == ("Go through the door with the light.", "First or Second.")
    environment = world.make(world.tasks("test", 1)[0], 0)
    text = environment.reset().text
    right, wrong = ("First", "Second") if text == "the light is over door 0" else ("Second", "First")
    refused = environment.step("Third")
    assert refused.observation.text == f"Not an action. Legal: First or Second.\n{text}"
    first, last = environment.step(wrong), environment.step(right)
    assert (first.terminated, first.success, last.terminated, last.success) == (False, False, True, True)
    assert dict(first.rewards) == {"reward": 0.5, "solved": 0.0}
    assert dict(last.rewards) == {"reward": 0.5, "solved": 1.0}
    again = environment.step(right)
    assert again.observation == last.observation
    assert (again.valid, again.effective, again.terminated, again.success) == (False, False, True, True)


def test_the_limit_that_an_environment_was_registered_with_truncates() -> None:
    environment = opened(GymnasiumText(**DOORS))
    wrong = "Second" if environment.reset().text.endswith("0") else "First"
    steps = [environment.step(wrong) for _ in range(3)]
    assert [(step.terminated, step.truncated, step.success) for step in steps] == [
        (False, False, False),
        (False, False, False),
        (False, True, False),
    ]
    assert not environment.step(wrong).valid


def test_arrays_and_named_parts_are_shown_by_a_template() -> None:
    described = {**DOORS, "view": "template", "template": "door {light}, {other}"}
    fields = [{"light": ["left", "right"]}, {"other": None}]
    vector = GymnasiumText(**{**described, "id": "TurnwiseVector-v0", "fields": fields})
    named = GymnasiumText(**{**described, "id": "TurnwiseNamed-v0", "fields": fields})
    task = vector.tasks("train", 1)[0]
    assert vector.make(task, 0).reset().text in ("door left, 7", "door right, 7")
    assert opened(named).reset().text in ("door left, 3.5", "door right, 3.5")


def test_success_is_a_reward_or_an_entry_of_the_information_and_is_paid_as_it_is_counted() -> None:
    def last(**success: Any) -> tuple[bool, dict[str, float]]:
        environment = opened(GymnasiumText(**{**DOORS, "success_info": None, **success}))
        step = environment.step("First" if environment.reset().text.endswith("0") else "Second")
        assert step.terminated
        return step.success, dict(step.rewards)

    won, lost = (True, {"reward": 0.5, "solved": 1.0}), (False, {"reward": 0.5, "solved": 0.0})
    assert (last(success_reward=0.5), last(success_reward=0.6)) == (won, lost)
    assert (last(success_info="won"), last(success_info="lost")) == (won, lost)


def test_a_passenger_who_is_set_down_elsewhere_is_not_paid_for() -> None:
    environment = opened(GymnasiumText(), number=3)  # the taxi is at 0 3, the passenger at yellow, the goal is blue
    way = ["South"] * 2 + ["West"] * 3 + ["South"] * 2 + ["Pickup", "Dropoff"]
    steps = [environment.step(action) for action in [*way, "Dropoff"]]
    # At yellow again, for a step's price; the taxi is then empty, and to set nobody down costs ten.
    assert [step.rewards["reward"] for step in steps] == [-1.0] * 9 + [-10.0]
    assert [step.rewards["solved"] for step in steps] == [0.0] * 10


# Randomness and tasks


def test_the_task_says_how_an_episode_begins_and_the_seed_how_it_goes_on() -> None:
    world = GymnasiumText(id="Blackjack-v1")

    def hands(number: int, seed: int) -> tuple[str, str]:
        environment = opened(world, seed, number)
        return environment.reset().text, environment.step("Hit").observation.text

    assert hands(0, 1) == hands(0, 1)
    assert {hands(0, seed)[0] for seed in range(10)} == {hands(0, 0)[0]}
    assert len({hands(0, seed)[1] for seed in range(10)}) > 2
    assert len({hands(number, 0)[0] for number in range(10)}) > 5


def test_an_environment_that_was_used_begins_as_a_new_one() -> None:
    used, new = GymnasiumText(), GymnasiumText()
    (task,) = used.tasks("test", 1)
    first = used.make(task, 0)
    first.reset()
    for action in ("South", "Pickup", "East"):
        first.step(action)
    first.close()
    second, fresh = used.make(task, 0), new.make(task, 0)
    assert second._environment is first._environment
    assert second.reset() == fresh.reset()
    assert second.step("North") == fresh.step("North")


def test_where_starts_are_apart_no_start_is_in_two_splits() -> None:
    world = GymnasiumText()

    def start(task: Task) -> str:
        with closing(world.make(task, 0)) as environment:
            return environment.reset().text

    starts = {split: {start(task) for task in world.tasks(split, 300)} for split in SPLITS}
    assert not starts["train"] & starts["validation"] and not starts["train"] & starts["test"]
    assert not starts["validation"] & starts["test"]
    assert len(starts["train"]) > 100 and len(starts["test"]) > 10


def test_a_single_start_cannot_be_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GymnasiumText(id="CliffWalking-v1", starts="apart")
    monkeypatch.setattr("envs.gymnasium_text.world.MAXIMUM_DRAWS", 20)
    with pytest.raises(
        ValueError, match=r"starts 'apart' must leave first observations for .*: set starts to 'shared'"
    ):
        for split in SPLITS:
            world.tasks(split, 1)


def test_an_environment_that_raised_is_closed_and_not_lent_to_another_episode() -> None:
    world = GymnasiumText(**{**DOORS, "id": "TurnwiseJammed-v0"})
    broken = opened(world)
    with pytest.raises(RuntimeError, match="the lock jams"):
        broken.step("Second")
    closed = Jammed.closed
    broken.close()
    assert Jammed.closed == closed + 1, "whatever it holds, as a game's process, would stay"
    assert opened(world).step("First").rewards["reward"] == 0.5


def test_the_order_of_names_in_a_file_means_nothing() -> None:
    turned = {**DOORS, "action_values": {"First": 0, "Second": 1}}
    generator = [seeding.generator(0, "player") for _ in range(2)]
    one, other = opened(GymnasiumText(**DOORS)), opened(GymnasiumText(**turned))
    assert [one.random(generator[0], PLENTY) for _ in range(20)] == [
        other.random(generator[1], PLENTY) for _ in range(20)
    ]


def test_other_arguments_are_other_tasks() -> None:
    plain, sure = GymnasiumText(id="FrozenLake-v1"), GymnasiumText(id="FrozenLake-v1", arguments={"is_slippery": False})
    with pytest.raises(ValueError, match=r"a task of 'gymnasium/1/FrozenLake-v1/starts-shared/' must have an id"):
        plain.make(sure.tasks("train", 1)[0], 0)


# Baseline policies


def test_the_random_baseline_is_uniform_over_the_names_and_uses_the_whole_turn() -> None:
    environment = opened(GymnasiumText(actions_per_turn=3))
    generator = seeding.generator(0, "player")
    played = [action for _ in range(200) for action in environment.random(generator, Remaining(9, 3, 27)).actions]
    assert len(played) == 600
    # Three standard errors of a sixth over 600 draws are 0.046.
    assert all(abs(played.count(name) / 600 - 1 / 6) < 0.046 for name in KNOWN["Taxi-v4"].action_values)
    assert len(environment.random(generator, Remaining(9, 3, 2)).actions) == 2


def test_the_oracle_plays_sure_actions_together_and_unsure_ones_one_by_one() -> None:
    sure = {"id": "FrozenLake-v1", "arguments": {"is_slippery": False}, "turns": 3, "actions_per_turn": 4}
    environment = opened(GymnasiumText(**sure))
    assert environment.oracle(Remaining(3, 4, 12)) == ScriptedAction("Down is best", ("Down", "Down", "Right", "Down"))
    assert len(environment.oracle(Remaining(3, 4, 2)).actions) == 2
    unsure = opened(GymnasiumText(id="FrozenLake-v1", actions_per_turn=4))
    assert len(unsure.oracle(Remaining(3, 4, 12)).actions) == 1


@pytest.mark.parametrize(
    "parameters", [{"id": "Blackjack-v1"}, DOORS, {"id": "FrozenLake-v1", "success_info": "is_success"}]
)
def test_a_world_without_a_model_says_that_it_has_no_oracle(parameters: dict[str, Any]) -> None:
    world = GymnasiumText(**parameters)
    assert world.baselines == ("random",) and GymnasiumText().baselines == ("random", "oracle")
    with pytest.raises(ValueError, match="the oracle needs the environment's model and state"):
        opened(world).oracle(PLENTY)
    first, second = (play(world, world.tasks("train", 1)[0], 0, "random") for _ in range(2))
    assert first == second and all(step.valid for step in first.steps)


# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"id": 3}, "id must be a text"),
        ({"id": "Nothing-v0", **{name: DOORS[name] for name in DOORS if name != "id"}}, "'Nothing-v0' .* raised"),
        ({"id": "Taxi-v4", "arguments": {"speed": 3}}, "id and arguments must make .* raised TypeError"),
        ({"arguments": {"render_mode": "human"}}, "arguments must leave render_mode to view"),
        ({"id": "TurnwiseDoors-v0"}, "instruction and action_values must be given for 'TurnwiseDoors-v0'"),
        ({**DOORS, "success_info": None}, "success_reward or success_info must say when an episode succeeds"),
        ({**DOORS, "success_reward": 1}, "and not both; found 1 and 'won'"),
        ({**DOORS, "view": "picture"}, "view must be one of template, ansi, text; found 'picture'"),
        ({**DOORS, "view": "template"}, "template must be a text such as"),
        ({**DOORS, "id": "TurnwiseVector-v0"}, "view 'text' must give a text; 'TurnwiseVector-v0' gave array"),
        ({**DOORS, "starts": "random"}, "starts must be one of apart, shared; found 'random'"),
        ({**DOORS, "action_values": {"Go": 0, "go": 1}}, "action_values must be named apart"),
        ({**DOORS, "action_values": {"Third": 2}}, r"action_values.Third must be a whole number out of Discrete\(2\)"),
        ({**DOORS, "action_values": {}}, "action_values must name the actions"),
        ({**DOORS, "instruction": " "}, "instruction must be a text"),
        ({"turns": 0}, "turns must be a whole number"),
        ({"actions_per_turn": 0}, "actions_per_turn must be a whole number"),
        ({"actions": 0}, "actions must be a whole number"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GymnasiumText(**parameters)
