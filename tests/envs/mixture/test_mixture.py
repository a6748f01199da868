from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.bandit import Bandit
from envs.frozen_lake import FrozenLake
from envs.mixture import Mixture
from envs.mixture.world import Part, in_turn
from turnwise import seeding
from turnwise.agent.formats import SearchFormat, ThinkAnswerFormat
from turnwise.checking import check_world
from turnwise.checking.playing import play
from turnwise.data import metrics
from turnwise.data.trajectory import Ending, Trajectory
from turnwise.errors import ConfigurationError
from turnwise.world import Limits, Remaining, Task, World

LAKE: dict[str, Any] = {"world": "frozen_lake", "preset": "ragen-v2-no-slip"}
PARTS: dict[str, Any] = {"lake": {**LAKE, "weight": 2}, "bandit": {}, "craft": {"world": "textcraft", "weight": 1}}


def mixed(**parameters: Any) -> Mixture:
    return Mixture(**{"parts": PARTS, **parameters})


def worlds_of(tasks: list[Task]) -> list[str | int]:
    return [task.tags["world"] for task in tasks]


# Task sets


def test_parts_take_turns_by_their_weights() -> None:
    # Shares 1/2, 1/4, 1/4. Behind by, before task 1: lake 0.5, bandit 0.25, craft 0.25; before 2: 0, 0.5, 0.5;
    # before 3: 0.5, -0.25, 0.75; before 4: 1, 0, 0; then all have what they should, and it begins again.
    assert worlds_of(mixed().tasks("train", 8)) == ["lake", "bandit", "craft", "lake"] * 2


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.integers(1, 200))
@settings(max_examples=60)
def test_no_part_is_ever_a_whole_task_ahead_of_its_share(weights: list[float], count: int) -> None:
    world = Bandit()
    parts = [Part(str(number), world, weight) for number, weight in enumerate(weights)]
    given = Counter(part.name for part, _ in zip(in_turn(parts), range(count), strict=False))
    # The deficits sum to 1 before every task, so the part that gets it was behind.
    assert all(given[part.name] - count * part.weight / sum(weights) < 1 + 1e-9 for part in parts)
    assert sum(given.values()) == count


def test_a_task_set_is_a_prefix_of_a_longer_one() -> None:
    for split in ("train", "validation", "test"):
        assert mixed().tasks(split, 5) == mixed().tasks(split, 13)[:5]


def test_names_that_a_part_withholds_are_withheld() -> None:
    assert set(Bandit().withheld_names()) and set(Bandit().withheld_names()) <= set(mixed().withheld_names())


def test_a_task_is_its_own_worlds_under_another_name() -> None:
    lake = FrozenLake(**FrozenLake.presets["ragen-v2-no-slip"])
    first, _, _, fourth = mixed().tasks("test", 4)
    own, second = lake.tasks("test", 2)
    assert first.id == f"mixture/1/lake/{own.id}"
    assert (first.world, first.seed, first.split) == ("mixture", own.seed, "test")
    assert first.tags == {**own.tags, "world": "lake"}
    assert fourth.id == f"mixture/1/lake/{second.id}"


def test_a_world_that_is_left_out_of_training_is_tested_on() -> None:
    world = mixed(train=["lake", "craft"])
    assert (
        set(worlds_of(world.tasks("train", 30))) == set(worlds_of(world.tasks("validation", 30))) == {"lake", "craft"}
    )
    assert set(worlds_of(world.tasks("test", 30))) == {"lake", "craft", "bandit"}
    assert [column.heading for column in world.columns] == [
        "success",
        "success lake",
        "success bandit",
        "success craft",
        "format",
        "turns",
    ]
    held_out = world.columns[2]
    assert held_out.tag == ("world", "bandit")
    assert held_out.description == "episodes of bandit, which is not trained on"


def test_validation_may_be_on_others_than_training() -> None:
    world = mixed(train=["lake"], validation=["craft"], test=["bandit"])
    assert [set(worlds_of(world.tasks(split, 4))) for split in ("train", "validation", "test")] == [
        {"lake"},
        {"craft"},
        {"bandit"},
    ]


class Finite(Bandit):
    """A bandit with five test tasks."""

    name: ClassVar[str] = "finite"

    def split_size(self, split: str) -> int | None:
        return 5 if split == "test" else None

    def tasks(self, split: Any, count: int) -> list[Task]:
        if split == "test" and count > 5:
            raise ValueError(f"count must be at most 5; found {count}")
        return super().tasks(split, count)


def test_a_mixture_ends_where_its_first_part_does() -> None:
    world = mixed(parts={"short": {"world": "test_mixture:Finite"}, "lake": {**LAKE, "weight": 3}})
    # Shares 1/4 and 3/4; before the second task both are 1/2 behind. The sixth task of `short` would be the 22nd.
    assert worlds_of(world.tasks("test", 4)) == ["lake", "short", "lake", "lake"]
    assert world.split_size("train") is None
    assert world.split_size("test") == 21
    assert len(world.tasks("test", 21)) == 21
    with pytest.raises(ValueError, match="needs 6 test tasks of the part 'short': count must be at most 5; found 6"):
        world.tasks("test", 22)


# Episodes


def test_an_episode_begins_with_what_its_world_asks_for() -> None:
    world = mixed()
    _, task, *_ = world.tasks("train", 2)
    bandit = Bandit()
    own = bandit.make(bandit.tasks("train", 1)[0], 0).reset().text
    expected = f"{bandit.instruction}\n{bandit.grammar}\n\n{own}"
    assert world.make(task, 0).reset().text == expected
    assert mixed(introduce=False).make(task, 0).reset().text == own
    assert bandit.instruction in mixed(introduce=False).instruction and bandit.instruction not in world.instruction


def test_an_episode_is_that_of_its_world_with_rewards_under_the_parts_name() -> None:
    world, lake = mixed(introduce=False), FrozenLake(**FrozenLake.presets["ragen-v2-no-slip"])
    (task,), (own,) = world.tasks("test", 1), lake.tasks("test", 1)
    ours, theirs = world.make(task, 3), lake.make(own, 3)
    assert ours.reset().state == f"lake/{theirs.reset().state}"
    step = ours.step("nonsense")
    assert step.observation.text == theirs.step("nonsense").observation.text
    assert (step.valid, step.effective) == (False, False)
    remaining = Remaining(5, 2, 10)
    for turns in range(5, 0, -1):
        decision = ours.oracle(Remaining(turns, 2, 2 * turns))
        assert decision == theirs.oracle(Remaining(turns, 2, 2 * turns))
        for action in decision.actions:
            step, other = ours.step(action), theirs.step(action)
            assert step.observation.text == other.observation.text
            assert dict(step.rewards) == {f"lake/{name}": value for name, value in other.rewards.items()}
        if step.terminated:
            break
    assert step.success and dict(step.rewards) == {"lake/goal": 1.0}
    generators = [seeding.generator(0, "player") for _ in range(2)]
    assert ours.decide("random", generators[0], remaining) == theirs.random(generators[1], remaining)


def test_every_task_keeps_its_own_worlds_limits() -> None:
    world = mixed()
    lake, bandit, craft, _ = world.tasks("test", 4)
    assert world.limits_of(lake) == Limits(turns=5, actions_per_turn=2, actions=10)
    assert world.limits_of(bandit) == Limits(turns=1, actions_per_turn=1, actions=1)
    assert world.limits_of(craft) == Limits(turns=20)
    # Of each kind the largest, so that it allows for all: TextCraft has no limit on the actions of an episode.
    assert world.limits == Limits(turns=20, actions_per_turn=2, actions=None)
    assert len(play(world, lake, 0, "random").turns) <= 5


def test_close_closes_the_worlds_own_environment() -> None:
    closed = []

    class Noted(Finite):
        def make(self, task: Task, seed: int) -> Any:
            environment = super().make(task, seed)
            environment.close = lambda: closed.append(task.id)  # type: ignore[method-assign]
            return environment

    world = mixed(parts={"lake": LAKE})
    world.parts["lake"] = Part("lake", Noted(), 1.0)
    task = Task(
        "mixture", f"mixture/1/lake/{Finite().tasks('test', 1)[0].id}", "test", Finite().tasks("test", 1)[0].seed
    )
    world.make(task, 0).close()
    assert len(closed) == 1


# The world


@pytest.mark.parametrize("introduce", [True, False])
def test_the_world_keeps_the_contract(introduce: bool) -> None:
    parameters = {"parts": {"lake": LAKE, "bandit": {}}, "train": ["lake"], "introduce": introduce}
    report = check_world(Mixture(**parameters), parameters=parameters, count=12, oracle_success=1.0, sample=1)
    assert report.passed, report.lines()


def test_baselines_are_those_that_all_parts_have() -> None:
    assert mixed().baselines == ("random", "oracle")
    blackjack = {"world": "gymnasium", "preset": "blackjack"}
    assert mixed(parts={"bandit": {}, "blackjack": blackjack}).baselines == ("random",)
    assert mixed(parts={"one": {"world": "search"}, "two": {"world": "search"}}).baselines == (
        "random",
        "oracle",
        "closed-book",
    )


def test_rewards_are_declared_under_the_parts_names() -> None:
    assert set(mixed().rewards) == {"lake/goal", "bandit/payoff", "craft/goal"}
    assert mixed().rewards["lake/goal"] == FrozenLake.rewards["goal"]
    assert not hasattr(World, "rewards") and World.columns != mixed().columns, "an instance's own must stay its own"


def test_any_world_is_written_in_think_answer() -> None:
    ThinkAnswerFormat().require_expressible(mixed())
    with pytest.raises(ConfigurationError, match="TW-format-loses-actions"):
        SearchFormat().require_expressible(mixed(parts={"search": {}}))


def test_the_code_of_a_mixture_is_that_of_its_parts_too() -> None:
    assert Mixture.modules({"parts": PARTS}) == (
        "envs.mixture.world",
        "envs.bandit.world",
        "envs.frozen_lake.lake",
        "envs.textcraft.world",
    )


def test_the_table_has_success_in_each_world() -> None:
    world = mixed()
    lake, bandit, craft, other_lake = world.tasks("test", 4)

    def played(task: Task, ending: Ending, replica: int = 0) -> Trajectory:
        return Trajectory(task, 0, replica, (), ending, "")

    task_set = [
        played(lake, Ending.SUCCESS),
        played(lake, Ending.FAILURE, 1),
        played(bandit, Ending.FAILURE),
        played(craft, Ending.SUCCESS),
        played(other_lake, Ending.SUCCESS),
    ]
    by_column = {column.heading: list(metrics.task_means(task_set, column).values()) for column in world.columns}
    assert by_column["success"] == [0.5, 0.0, 1.0, 1.0]
    assert by_column["success lake"] == [0.5, 1.0]
    assert by_column["success bandit"] == [0.0]
    assert by_column["success craft"] == [1.0]
    means = metrics.episode_means(task_set)
    # Over episodes: two of three on the lake.
    assert (means["success"], means["success/lake"], means["success/bandit"]) == (3 / 5, 2 / 3, 0.0)
    assert "success/lake" not in metrics.episode_means([played(FrozenLake().tasks("test", 1)[0], Ending.SUCCESS)])


# Parameters


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"parts": {}}, "parts must name the worlds"),
        ({"parts": {"a/b": {"world": "bandit"}}}, "a part's name must be letters, digits, - and _; found 'a/b'"),
        ({"parts": {"bandit": 3}}, "part 'bandit' must say of world, preset, parameters, weight"),
        ({"parts": {"bandit": {"wieght": 2}}}, "part 'bandit' has no key 'wieght': did you mean 'weight'?"),
        ({"parts": {"bandit": {"weight": 0}}}, "the weight of part 'bandit' must be a number above 0; found 0"),
        ({"parts": {"bandit": {"parameters": [1]}}}, r"the parameters of part 'bandit' must be a mapping; found \[1\]"),
        ({"parts": {"bandit": {"parameters": {"arms": 3}}}}, "part 'bandit': arms is no parameter"),
        ({"parts": {"bandit": {"preset": "ragn"}}}, "'bandit' has no preset 'ragn': did you mean 'ragen'?"),
        ({"parts": {"bandits": {}}}, "world must be one of"),
        ({"train": ["lakes"]}, "train must name parts, which are lake, bandit, craft; found 'lakes'"),
        ({"test": []}, r"test must be a list of different names of parts; found \[\]"),
        ({"validation": []}, r"validation must be a list of different names of parts; found \[\]"),
        ({"test": ["lake", "lake"]}, "test must be a list of different names"),
        (
            {"train": ["lake"], "test": ["craft"]},
            "every part must be in train, validation or test; found bandit in none",
        ),
        ({"introduce": "yes"}, "introduce must be true or false; found 'yes'"),
        (
            {"parts": {"inner": {"world": "envs.mixture:Mixture", "parameters": {"parts": {"bandit": {}}}}}},
            "a part must be a world of its own; found a mixture",
        ),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixed(**parameters)


def test_a_task_of_no_part_is_refused() -> None:
    other = mixed(parts={"other": LAKE}).tasks("train", 1)[0]
    with pytest.raises(ValueError, match=r"must be named mixture/1/PART/.*; found 'mixture/1/other/frozen_lake"):
        mixed().make(other, 0)
    with pytest.raises(ValueError, match="must have an id that begins so"):
        mixed(parts={"other": {"world": "bandit"}}).make(other, 0)
