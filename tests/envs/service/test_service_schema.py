"""What is sent is what was meant: steps and generators come back to the bit, and nothing strange gets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from service_samples import Brittle

from envs.service.generator_state import GeneratorState
from envs.service.plain import plain_decision, plain_observation, plain_step
from envs.service.schema import Create, EpisodeQuestion, ServedWorld, Stepped
from turnwise.agent.episode import _storable
from turnwise.world import Observation, Remaining, ScriptedAction, Step, Task

finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.dictionaries(st.text(max_size=5), finite, max_size=3)
observations = st.builds(Observation, st.text(), st.none() | st.text())
steps = st.builds(
    Step, observations, numbers, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(), numbers
)


@given(steps)
def test_any_step_comes_back_as_it_was(step: Step) -> None:
    sent = Stepped(number=1, step=plain_step(step)).model_dump_json()
    assert Stepped.model_validate_json(sent).step == step


@given(st.integers(0, 2**64), st.lists(st.sampled_from(["integers", "half", "normal", "shuffle"]), max_size=6))
def test_a_generator_goes_on_where_it_stood(seed: int, draws: list[str]) -> None:
    here = np.random.default_rng(seed)

    def draw(generator: np.random.Generator, kind: str) -> object:
        if kind == "integers":
            return int(generator.integers(10**12))
        if kind == "half":  # draws of 32 bits use the halves of 64, one after the other
            return generator.integers(0, 2**32, dtype=np.uint32).item()
        return generator.normal() if kind == "normal" else generator.permutation(9).tolist()

    for kind in draws:
        draw(here, kind)
    there = np.random.default_rng(0)
    GeneratorState.model_validate_json(GeneratorState.of(here).model_dump_json()).put_into(there)
    for kind in ("half", "integers", "half", "normal", "shuffle"):
        assert draw(there, kind) == draw(here, kind)


def test_a_generator_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"PCG64.*found MT19937"):
        GeneratorState.of(np.random.Generator(np.random.MT19937(0)))


@given(st.text(st.characters(), max_size=8))
def test_texts_are_told_as_the_agent_stores_them(text: str) -> None:
    # A remote world's text and the same text of a local one are one in the trajectory.
    spoiled = text + "\ud800" + text
    assert _storable(plain_observation(Observation(spoiled, spoiled)).text) == _storable(spoiled)
    assert plain_observation(Observation(spoiled, spoiled)).state == _storable(spoiled)
    assert plain_decision(ScriptedAction(spoiled, (spoiled,))) == ScriptedAction(
        _storable(spoiled), (_storable(spoiled),)
    )


def test_the_id_of_a_world_changes_with_all_that_it_says() -> None:
    def named(parameters: dict[str, str], world: Brittle, name: str = "brittle", content: str = "") -> str:
        return ServedWorld.of(name, parameters, world, content).id

    class Newer(Brittle):
        version = "4"

    plain = named({}, Brittle())
    assert plain == named({}, Brittle()) and plain.startswith("brittle-")
    others = [named({}, Brittle(instruction="Else.")), named({"a": "b"}, Brittle()), named({}, Newer())]
    others.append(named({}, Brittle(), "another:Name"))
    others.append(named({}, Brittle(), content="of other code"))
    assert len({plain, *others}) == 6


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"seed": "x"},
        {"seed": None},
        {"key": ""},
        {"key": "a b"},
        {"task": {"world": "w", "id": "i", "split": "none", "seed": 1}},
        {"task": {"world": "w", "id": "i", "split": "test"}},
        {"task": {"world": "w", "id": "i", "split": "test", "seed": 1, "colour": "red"}},
    ],
)
def test_requests_are_closed(change: dict[str, object]) -> None:
    right = {"world": "w", "task": {"world": "w", "id": "i", "split": "test", "seed": 1}, "seed": 2**63 - 1, "key": "k"}
    assert Create.model_validate(right).task == Task("w", "i", "test", 1)
    with pytest.raises(ValidationError):
        Create.model_validate({**right, **change})


def test_only_the_oracle_goes_without_a_generator() -> None:
    remaining = Remaining(1, 1, 1)
    assert EpisodeQuestion(baseline="oracle", remaining=remaining).generator is None
    with pytest.raises(ValidationError, match="the baseline policy 'random' must be given a generator's state"):
        EpisodeQuestion(baseline="random", remaining=remaining)
