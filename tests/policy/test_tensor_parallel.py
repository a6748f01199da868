"""vLLM's tensor parallelism: what reaches vLLM. It needs a device for each part, so what is inside stands in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.own_view import let_see
from turnwise.policy.engines import vllm
from turnwise.policy.engines.contract import Sampling
from turnwise.policy.engines.resident import make_engine
from turnwise.policy.engines.vllm import VllmEngine
from turnwise.policy.engines.vllm_model import load_in_worker, seed_worker
from turnwise.policy.memory_plan import EngineMemory

MakePolicy = Callable[..., Path]


class Workers:
    """What `VllmEngine` calls of vLLM, and two workers."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.calls: list[Any] = []
        self.engine_core = self

    def collective_rpc(self, method: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.calls.append((method, *args))

    def reset_prefix_cache(self) -> bool:
        return True

    def shutdown(self) -> None:
        self.calls.append("closed")


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    made = Workers()

    class Llm:
        def __init__(self, **arguments: Any) -> None:
            made.arguments = arguments
            self.llm_engine = made

    monkeypatch.setattr("turnwise.policy.engines.vllm.import_vllm", lambda: Llm)
    let_see(monkeypatch, vllm, "importlib", util=SimpleNamespace(find_spec=lambda name: "there"))
    for name in ("OMP_NUM_THREADS", "VLLM_WORKER_MULTIPROCESSING_METHOD", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "as it was")
    return made


def engine_of(parts: int) -> VllmEngine:
    options = {"threads": 3, "context_length": 64, "maximum_episodes": 2}
    made = make_engine("vllm", **options, tensor_parallel=parts)  # type: ignore[arg-type]
    assert isinstance(made, VllmEngine)
    return made


def test_each_part_is_a_worker_that_is_seeded_and_reads_the_weights(workers: Workers, make_policy: MakePolicy) -> None:
    engine, first, second = engine_of(2), make_policy(0), make_policy(1)
    engine.load(first, "first")
    assert workers.arguments["tensor_parallel_size"] == 2
    assert workers.arguments["distributed_executor_backend"] == "mp"
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert workers.calls == []
    engine.load(second, "second")
    engine.begin(11, Sampling(1.0, 4, (1,)))
    assert workers.calls == [(load_in_worker, second, None), (seed_worker, 11)]


def test_the_default_says_nothing_of_parts(workers: Workers, make_policy: MakePolicy) -> None:
    engine_of(1).load(make_policy(0), "it")
    assert workers.arguments and not any("parallel" in name or "executor" in name for name in workers.arguments)
    assert os.environ["OMP_NUM_THREADS"] == "as it was"


def test_a_worker_reads_the_output_layer_too(make_policy: MakePolicy) -> None:
    read: list[str] = []

    class Worker:
        def reload_weights(self, weights_iterator: Any) -> None:
            read.extend(name for name, _ in weights_iterator)

    load_in_worker(Worker(), make_policy(0, tied=True), None)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(read)


def test_a_part_takes_its_share_of_weights_and_of_the_heads_of_keys_and_values(make_policy: MakePolicy) -> None:
    from turnwise.policy.dimensions import dimensions_in

    found = dimensions_in(make_policy(0))  # two heads share one of keys and values
    one, two = (EngineMemory(found, "vllm", "cuda", "bfloat16", 64, 256, 256, parts) for parts in (1, 2))
    assert two.weights == one.weights / 2 and two.cache == one.cache
