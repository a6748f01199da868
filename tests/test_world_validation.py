"""What a world answers is held against the contract in one place, whoever made the world and whoever plays it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Text

from envs.gymnasium_text import GymnasiumText
from envs.mixture import Mixture
from turnwise.agent.host import Host, RetryPolicy
from turnwise.checking import check_world
from turnwise.errors import ContractError
from turnwise.world import (
    Environment,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    ValidatedEnvironment,
    World,
    make_world,
)

HERE = f"{__name__}:Answers"
LIMITS = Remaining(2, 1, 2)
RIGHT: Any = object()


class Answers(World):
    """A world that answers whatever it is told to."""

    name: ClassVar[str] = "answers"
    version: ClassVar[str] = "1"
    instruction = "Say a digit."
    grammar = "0 to 9."
    limits = Limits(turns=2)
    rewards: ClassVar[Mapping[str, Reward]] = {"goal": Reward("1 if right", "outcome", 1.0)}
    blocks = False
    told: ClassVar[dict[str, Any]] = {}
    """What the next environments answer: `first`, `step`, `decision`, or fields of a step."""
    steps: ClassVar[int] = 0

    def tasks(self, split: Split, count: int) -> list[Task]:
        return [Task(self.name, f"answers/1/{split}/{number}", split, number) for number in range(count)]

    def make(self, task: Task, seed: int) -> Environment:
        made: Environment = self.told.get("made", _Episode(task))
        return made


class _Episode(Environment):
    def __init__(self, task: Task) -> None:
        self._task = task

    def reset(self) -> Observation:
        first: Observation = Answers.told.get("first", Observation("Digit?", state="0"))
        return first

    def step(self, action: str) -> Step:
        Answers.steps += 1
        told = Answers.told
        fields = {"observation": Observation("No.", state="0"), "rewards": {"goal": 0.0}, "effective": False}
        made: Step = told["step"] if "step" in told else Step(**{**fields, **told.get("fields", {})})
        return made

    def oracle(self, remaining: Remaining) -> ScriptedAction:
        decision: ScriptedAction = Answers.told.get("decision", ScriptedAction("know", ("1",)))
        return decision

    def random(self, generator: np.random.Generator, remaining: Remaining) -> ScriptedAction:
        return ScriptedAction("any", (str(generator.integers(10)),))


@pytest.fixture(autouse=True)
def _as_it_should() -> None:
    Answers.told, Answers.steps = {}, 0


def told(**answers: Any) -> None:
    Answers.told = answers


def played(world: World | None = None) -> Step:
    """One step in the agent's host, which tries twice again what a world loses."""
    world = world or Answers()
    host = Host(world, world.tasks("train", 4)[3], 0, RetryPolicy(seconds=20, retries=2))
    try:
        host.reset()
        host.decide("oracle", np.random.default_rng(0), LIMITS)
        host.start(("1",))
        return host.finish()[0]
    finally:
        host.close()


def refused(world: World | None = None) -> str:
    with pytest.raises(ContractError) as error:
        played(world)
    return error.value.message


# What counts as a number, a flag, a text


@pytest.mark.parametrize(
    "number",
    [
        *(1.0, 1, True, Fraction(1), np.float32(1), np.float16(1), np.float64(1), np.longdouble(1)),
        *(np.int64(1), np.uint8(1), np.bool_(True), np.array(1.0), np.array(1), torch.tensor(1.0), torch.tensor(1)),
    ],
)
def test_whatever_stands_for_one_number_is_one(number: Any) -> None:
    told(fields={"rewards": {"goal": number}, "metrics": {"seen": number}})
    step = played()
    for values in (step.rewards, step.metrics):
        assert [(type(value), value) for value in values.values()] == [(float, 1.0)]


def test_a_float_of_fewer_bits_keeps_its_value() -> None:
    told(fields={"rewards": {"goal": np.float32(0.1)}})
    assert played().rewards == {"goal": float(np.float32(0.1))}


@pytest.mark.parametrize(
    ("number", "found"),
    [
        (None, "None"),
        ("1.0", "'1.0'"),
        (b"1", "b'1'"),
        (1j, "1j"),
        ([1.0], "[1.0]"),
        ({"goal": 1.0}, "{'goal': 1.0}"),
        (np.array([1.0]), "array([1.])"),
        (np.array(None), "array(None, dtype=object)"),
        (np.str_("1"), "np.str_('1')"),
        (torch.ones(1), "tensor([1.])"),
    ],
)
@pytest.mark.parametrize("field", ["rewards", "metrics"])
def test_anything_else_is_refused_with_its_name_and_its_task(field: str, number: Any, found: str) -> None:
    told(fields={field: {"goal": number}})
    kind = field[:-1]
    assert refused() == (
        f"{kind} goal of answers/1/train/3 must be a number; found {found}: leave the {kind} out where there is none"
    )
    assert Answers.steps == 1, "another attempt would answer the same"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, np.float32(math.nan), 10**400])
def test_a_number_must_be_finite(number: Any) -> None:
    told(fields={"rewards": {"goal": number}})
    assert refused().startswith("reward goal of answers/1/train/3 must be a finite number; found ")


@pytest.mark.parametrize("number", [1e308, -3.5e38, 10**300])
def test_a_number_must_be_finite_in_the_learners_32_bits(number: float) -> None:
    told(fields={"rewards": {"goal": number}})
    assert refused() == (
        "reward goal of answers/1/train/3 must be at most 3.4e+38 in magnitude, as 32 bits hold; "
        f"found {float(number)}: scale it"
    )


def test_the_largest_number_of_32_bits_is_one() -> None:
    told(fields={"rewards": {"goal": float(np.finfo(np.float32).max)}})
    assert played().rewards == {"goal": float(np.finfo(np.float32).max)}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"first": None}, "the observation of answers/1/train/3 must be an Observation; found None"),
        ({"first": "Digit?"}, "the observation of answers/1/train/3 must be an Observation; found 'Digit?'"),
        ({"first": Observation(RIGHT)}, "the observation's text of answers/1/train/3 must be a text (str); found <obj"),
        ({"first": Observation("", 3)}, "the observation's state of answers/1/train/3 must be a text (str) or None; "),  # type: ignore[arg-type]
        ({"step": None}, "step of answers/1/train/3 must return a Step; found None"),
        ({"step": ("No.", 0.0, False, False, {})}, "step of answers/1/train/3 must return a Step; found ('No.', 0.0,"),
        (
            {"fields": {"observation": Observation(b"raw")}},  # type: ignore[arg-type]
            "the observation's text of answers/1/train/3 must be a text (str); found b'raw': decode it",
        ),
        (
            {"fields": {"observation": "No."}},
            "the observation of answers/1/train/3 must be an Observation; found 'No.'",
        ),
        (
            {"fields": {"rewards": 1.0}},
            "the rewards of answers/1/train/3 must be a mapping from names to numbers; found 1.0",
        ),
        (
            {"fields": {"metrics": None}},
            "the metrics of answers/1/train/3 must be a mapping from names to numbers; found None",
        ),
        ({"fields": {"rewards": {3: 1.0}}}, "the name of a reward of answers/1/train/3 must be a text (str); found 3"),
        ({"fields": {"terminated": None}}, "terminated of answers/1/train/3 must be True or False; found None"),
        ({"fields": {"success": "no"}}, "success of answers/1/train/3 must be True or False; found 'no'"),
        ({"made": None}, "make of answers/1/train/3 must return an Environment; found None"),
        ({"decision": "1"}, "a baseline policy of answers/1/train/3 must return a ScriptedAction; found '1'"),
        (
            {"decision": ScriptedAction("", "1")},  # type: ignore[arg-type]
            "the actions of a baseline policy of answers/1/train/3 must be a tuple of texts; found '1'",
        ),
        (
            {"decision": ScriptedAction("", (1,))},  # type: ignore[arg-type]
            "an action of a baseline policy of answers/1/train/3 must be a text (str); found 1",
        ),
    ],
)
def test_every_part_of_an_answer_has_its_type(answers: dict[str, Any], said: str) -> None:
    told(**answers)
    assert refused().startswith(said)


def test_numpys_flags_become_pythons_and_what_is_right_is_left_alone() -> None:
    told(fields={"success": np.bool_(True), "terminated": np.True_})
    step = played()
    assert (step.success, step.terminated) == (True, True) and type(step.success) is type(step.terminated) is bool
    right = Step(Observation("No.", "0"), MappingProxyType({"goal": 1.0}))
    told(step=right)
    assert played() is right


def test_what_is_long_is_quoted_in_part() -> None:
    told(fields={"rewards": {"goal": np.zeros(1000)}})
    assert len(refused()) < 250 and "(ndarray)" in refused()


# Every source


def test_a_part_of_a_mixture_is_held_to_it_before_it_is_renamed() -> None:
    world = Mixture(parts={"one": {"world": HERE}})
    told(fields={"rewards": {"goal": None}})
    assert refused(world).startswith("reward goal of mixture/1/one/answers/1/train/3 must be a number; found None")
    told(first=Observation(None, "0"))  # type: ignore[arg-type]
    assert refused(world).startswith("the observation's text of mixture/1/one/answers/1/train/3 must be a text")


class Words(gymnasium.Env[str, str]):
    """Answers what it is told to; any word is an action."""

    action_space, observation_space = Text(12), Text(100)
    reward: ClassVar[Any] = 1.0
    text: ClassVar[Any] = "so"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "begin", {"rest": ["a"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return Words.text, Words.reward, False, False, {"rest": ["a"]}


gymnasium.register("AnswersOfWords-v0", entry_point=Words)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("reward", None, r"reward of gymnasium/.* must be a number; found None"),
        ("reward", math.nan, r"reward of gymnasium/.* must be a finite number; found nan"),
        ("reward", np.array([1.0]), r"reward of gymnasium/.* must be a number; found array\(\[1\.\]\)"),
        ("text", b"raw", r"view 'text' must give a text; 'AnswersOfWords-v0' gave b'raw'"),
        ("text", None, r"view 'text' must give a text; 'AnswersOfWords-v0' gave None"),
    ],
)
def test_a_gymnasium_environment_is_held_to_it(
    monkeypatch: pytest.MonkeyPatch, field: str, value: Any, said: str
) -> None:
    settings = {"action": "text", "instruction": "Say a word.", "grammar": "one word.", "view": "text"}
    world = GymnasiumText(id="AnswersOfWords-v0", **settings, success_reward=2.0, solution="rest")
    assert played(world).rewards == {"reward": 1.0, "solved": 0.0}
    monkeypatch.setattr(Words, field, value)
    assert re.match(said, refused(world))


def test_check_says_what_a_run_says() -> None:
    told(fields={"rewards": {"goal": np.float32(0.5)}})
    parameters: dict[str, Any] = {}
    passed = {check.name: check.found for check in check_world(make_world(HERE, parameters), count=4).checks}
    assert passed["rewards are declared"] == "emitted: goal"
    assert not any("TypeError" in found or "JSON" in found for found in passed.values())
    told(fields={"rewards": {"goal": None}})
    report = check_world(make_world(HERE, parameters), count=4)
    (found,) = [check.found for check in report.failed if check.name == "rewards are declared"]
    assert found.startswith("reward goal of answers/1/test/0 must be a number; found None")
    assert found.endswith(" [TW-answer-type]")
    assert not any("raised" in check.found for check in report.failed)


def test_an_environment_is_closed_through_it() -> None:
    closed = []

    class Closing(_Episode):
        def close(self) -> None:
            closed.append(self._task.id)

    task = Answers().tasks("test", 1)[0]
    ValidatedEnvironment(Closing(task), task).close()
    assert closed == [task.id]
