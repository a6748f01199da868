"""vLLM that sleeps while the learner computes. It sleeps on a card alone, so what is inside of the engine stands in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refusal

from tests.own_view import let_see
from turnwise.config.model_settings import Compute
from turnwise.policy.engines import resident, vllm
from turnwise.policy.engines.contract import Sleeps
from turnwise.policy.engines.resident import close_resident_engine, resident_engine, rest_resident_engine
from turnwise.policy.engines.vllm import VllmEngine

MakePolicy = Callable[..., Path]
ON_A_CARD = {"device": "cuda", "engine": "vllm", "engine_threads": 1, "learner_threads": 1}


class Inside:
    """What `VllmEngine` calls of vLLM: it records the calls, and is awake once both parts are back."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.gone: set[str] = set()
        self.engine_core = self

    def sleep(self, level: int) -> None:
        self.calls.append(("sleep", level))
        self.gone = {"weights", "kv_cache"}

    def wake_up(self, parts: list[str] | None) -> bool:
        self.calls.append(("wake_up", parts))
        self.gone -= set(parts or ["weights", "kv_cache"])
        return not self.gone

    def collective_rpc(self, name: str, kwargs: dict[str, Any]) -> None:
        assert name == "reload_weights" and "weights" not in self.gone, "weights go where there is memory for them"
        assert any(name == "lm_head.weight" for name, _ in kwargs["weights_iterator"])
        self.calls.append("weights")

    def reset_prefix_cache(self) -> bool:
        return True

    def shutdown(self) -> None:
        self.calls.append("closed")


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    made = Inside()

    def start(engine: VllmEngine, policy: Path, *, without_weights: bool) -> None:
        engine._engine = made

    monkeypatch.setattr(VllmEngine, "_start", start)
    let_see(monkeypatch, vllm, "importlib", util=SimpleNamespace(find_spec=lambda name: "there"))
    return made


def engine_of(level: int) -> VllmEngine:
    return VllmEngine(device="cpu", threads=1, context_length=64, maximum_episodes=2, sleep_level=level)


def test_at_level_2_weights_and_cache_go_and_the_weights_are_handed_over_again(
    inside: Inside, make_policy: MakePolicy
) -> None:
    engine, policy = engine_of(2), make_policy(0)
    engine.load(policy, "first")
    engine.sleep()
    engine.sleep()
    assert inside.calls == [("sleep", 2)], "who sleeps sleeps on"
    for digest in ("second", "second", "first"):
        inside.calls.clear()
        engine.load(policy, digest)
        assert inside.calls == [("wake_up", ["weights"]), "weights", ("wake_up", ["kv_cache"])]
        engine.load(policy, digest)
        assert len(inside.calls) == 3, "awake, and it has these weights"
        engine.sleep()


def test_at_level_1_the_weights_that_it_has_need_not_be_handed_over(inside: Inside, make_policy: MakePolicy) -> None:
    engine, policy = engine_of(1), make_policy(0)
    engine.load(policy, "first")
    engine.sleep()
    engine.load(policy, "first")
    assert inside.calls == [("sleep", 1), ("wake_up", None)]
    engine.sleep()
    engine.load(policy, "second")
    assert inside.calls[2:] == [("sleep", 1), ("wake_up", ["weights"]), "weights", ("wake_up", ["kv_cache"])]


def test_an_engine_that_was_made_to_stay_awake_does(inside: Inside, make_policy: MakePolicy) -> None:
    engine = engine_of(0)
    engine.sleep()
    engine.load(make_policy(0), "first")
    engine.sleep()
    assert inside.calls == []


def test_nothing_sleeps_while_replies_are_in_flight(inside: Inside, make_policy: MakePolicy) -> None:
    engine = engine_of(2)
    engine.load(make_policy(0), "first")
    engine._episodes["0"] = 0
    with pytest.raises(RuntimeError, match="to sleep; found 1 contexts"):
        engine.sleep()


def test_the_resident_engine_rests_when_a_learner_is_taken(inside: Inside, make_policy: MakePolicy) -> None:
    close_resident_engine()
    engine = resident_engine("vllm", threads=1, context_length=64, maximum_episodes=2, sleep_level=2)
    engine.load(make_policy(0), "first")
    rest_resident_engine()
    assert inside.calls == [("sleep", 2)]
    close_resident_engine()
    embedded = resident_engine("embedded", threads=1, context_length=64, maximum_episodes=2)
    rest_resident_engine()
    assert not isinstance(embedded, Sleeps) and len(resident._resident) == 1
    close_resident_engine()


def test_vllm_is_asked_for_its_sleep_mode_where_it_is_to_sleep(make_policy: MakePolicy) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    assert [engine_of(level)._arguments(make_policy(0)).get("enable_sleep_mode") for level in (0, 1)] == [None, True]


@pytest.mark.parametrize("other", [{"device": "cpu"}, {"engine": "embedded"}])
def test_where_nothing_can_sleep_it_is_refused(other: dict[str, str]) -> None:
    assert Compute(**ON_A_CARD, sleep_level=2).sleep_level == 2
    assert "must have sleep_level: 0 on the device" in refusal(Compute, {**ON_A_CARD, **other, "sleep_level": 1})
    assert "sleep_level" not in Compute(**ON_A_CARD).model_dump(mode="json")
