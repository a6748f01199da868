"""Two engines in processes of their own: each is one engine for its groups, and nothing is left when one dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from policy_samples import CONTEXT, END, contexts
from safetensors.torch import load_file, save_file

from turnwise import seeding
from turnwise.config.model_settings import Compute
from turnwise.errors import EngineLost, NotFiniteError
from turnwise.policy.engines.contract import Engine, Reply, Sampling
from turnwise.policy.engines.processes import ALONE, EnginesOnProcesses, EngineSpread
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.model import WEIGHTS_FILE

MakePolicy = Callable[..., Path]
OPTIONS = {"device": "cpu", "threads": 1, "context_length": CONTEXT, "maximum_episodes": 8}
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
"""The group of each of the twelve contexts."""
BY_ENGINE = ([0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11])
"""The episodes of each engine: those of groups 0 and 2, and of 1 and 3."""


@pytest.fixture(scope="module")
def two() -> Iterator[EnginesOnProcesses]:
    engines = EnginesOnProcesses(EngineSpread(engines=2), name="embedded", **OPTIONS)
    yield engines
    engines.close()


def played(engine: Engine, episodes: Sequence[int], *, seed: int, temperature: float = 1.0) -> dict[int, list[Reply]]:
    """Two turns of each episode: the second follows the first reply and an observation."""
    engine.begin(seed, Sampling(temperature, 9, (END,)))
    if isinstance(engine, EnginesOnProcesses):
        engine.share_out(GROUPS)
    found: dict[int, list[Reply]] = {each: [] for each in episodes}
    seen = contexts()
    for each in episodes:
        engine.submit(each, seen[each])
    while engine.in_flight:
        for reply in engine.step():
            turns = found[reply.episode]
            turns.append(reply)
            if len(turns) == 1:
                engine.submit(reply.episode, [*seen[reply.episode], *reply.tokens, 17, 18, 19], 5)
    return found


def test_each_samples_its_groups_as_one_engine_with_its_seed_whichever_is_faster(
    two: EnginesOnProcesses, make_policy: MakePolicy
) -> None:
    policy = make_policy(7)
    two.load(policy, "of two")
    assert two.slots == 16
    before = two.tokens_generated
    sampled = played(two, range(12), seed=5)
    tokens = sum(len(reply.tokens) for turns in sampled.values() for reply in turns)
    assert two.tokens_generated - before == tokens and all(len(turns) == 2 for turns in sampled.values())
    for number, episodes in enumerate(BY_ENGINE):
        one = make_engine("embedded", **OPTIONS)
        one.load(policy, "of one")
        expected = played(one, episodes, seed=seeding.derive(5, "engine", number))
        assert {each: sampled[each] for each in episodes} == expected, "to the bit"
    for slow in two.process_ids:
        os.kill(slow, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (slow, signal.SIGCONT)).start()
        assert played(two, range(12), seed=5) == sampled


def test_greedy_replies_are_those_of_one_engine(two: EnginesOnProcesses, make_policy: MakePolicy) -> None:
    policy = make_policy(8)
    two.load(policy, "greedy")
    one = make_engine("embedded", **OPTIONS)
    one.load(policy, "greedy")
    found, expected = (played(each, range(12), seed=1, temperature=0.0) for each in (two, one))
    for episode, turns in expected.items():
        assert [each.tokens for each in found[episode]] == [each.tokens for each in turns]
        for mine, its in zip(found[episode], turns, strict=True):
            assert mine.log_probabilities == pytest.approx(its.log_probabilities, abs=1e-5)


def test_another_policy_is_sampled_from_after_it_was_loaded(two: EnginesOnProcesses, make_policy: MakePolicy) -> None:
    replies = []
    for seed in (1, 2, 1):
        two.load(make_policy(seed), str(seed))
        replies.append(played(two, range(12), seed=5))
    assert replies[0] == replies[2] != replies[1]


def test_nothing_is_begun_or_loaded_at_the_wrong_time(two: EnginesOnProcesses, make_policy: MakePolicy) -> None:
    two.load(make_policy(9), "finite")
    with pytest.raises(RuntimeError, match="in flight"):
        two.step()
    two.begin(1, Sampling(1.0, 4, (END,)))
    two.submit(0, [3])
    with pytest.raises(ValueError, match="episode 0 awaits one already"):
        two.submit(0, [3])
    with pytest.raises(RuntimeError, match="nothing may be in flight to load a policy"):
        two.load(make_policy(9), "another")
    while two.in_flight:
        two.step()


def test_all_end_with_one_and_new_ones_give_the_same_replies(two: EnginesOnProcesses, make_policy: MakePolicy) -> None:
    policy = make_policy(7)
    two.load(policy, "it")
    expected = played(two, range(12), seed=5)
    before = two.process_ids
    two.begin(5, Sampling(1.0, 9, (END,)))
    two.submit(0, [3, 4])
    two.submit(1, [3, 4])
    os.kill(before[1], signal.SIGKILL)
    with pytest.raises(EngineLost, match=r"(?s)process 1.*SIGKILL.*TW-engine-lost"):
        two.step()
    assert not any(map(psutil.pid_exists, before)) and two.in_flight == 0
    two.load(policy, "it")
    assert played(two, range(12), seed=5) == expected


def test_what_an_engine_refuses_is_raised_here_and_all_end(two: EnginesOnProcesses, make_policy: MakePolicy) -> None:
    policy = make_policy(9)
    weights = load_file(policy / WEIGHTS_FILE)
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, policy / WEIGHTS_FILE, metadata={"format": "pt"})
    two.load(policy, "not finite")
    with pytest.raises(NotFiniteError, match="TW-not-finite"):
        played(two, range(12), seed=5)
    assert two.process_ids == []
    with pytest.raises(RuntimeError, match="a policy must be loaded before a rollout begins"):
        two.begin(5, Sampling(1.0, 9, (END,)))


def test_an_engine_sees_its_own_cards_alone() -> None:
    values = {"device": "cuda", "engine": "vllm", "engine_threads": 1, "learner_threads": 1}
    assert EngineSpread.of(Compute.model_validate(values)) == ALONE
    shared = Compute.model_validate({**values, "engines": 2, "tensor_parallel": 2, "learner_processes": 3})
    apart = shared.model_copy(update={"engines_apart": True})
    for compute, cards, seen in ((shared, 4, ["0,1", "2,3"]), (apart, 7, ["3,4", "5,6"])):
        assert compute.cards == cards
        spread = EngineSpread.of(compute)
        assert [spread.environment(each, "cuda", {})["CUDA_VISIBLE_DEVICES"] for each in range(2)] == seen
    lent = EngineSpread.of(apart).environment(1, "cuda", {"CUDA_VISIBLE_DEVICES": "8,9,a,b,c,d,e"})
    assert lent == {"CUDA_VISIBLE_DEVICES": "d,e"}
    assert EngineSpread.of(apart).environment(1, "cpu", {"A": "b"}) == {"A": "b"}
