"""Engines by name, and the one resident engine that all tasks of a process share."""

from __future__ import annotations

import gc
from typing import Any

from turnwise.config.model_settings import EngineName, Precision, SleepLevel
from turnwise.errors import ConfigurationError
from turnwise.own_process import compute_reproducibly
from turnwise.policy.engines.contract import Engine, Sleeps
from turnwise.policy.engines.processes import ALONE, EnginesOnProcesses, EngineSpread
from turnwise.policy.freed_memory import return_freed_memory


def make_engine(
    name: EngineName,
    *,
    device: str = "cpu",
    threads: int = 1,
    context_length: int,
    maximum_episodes: int,
    precision: Precision = "float32",
    sleep_level: SleepLevel = 0,
    tensor_parallel: int = 1,
) -> Engine:
    """A new engine by name, in this process.

    `threads` is the number of CPU threads that it computes with (bit-exact results depend on it). `context_length` is
    in tokens, context and reply together. `maximum_episodes` is the number of replies that it samples concurrently;
    further submissions wait. `precision` is what vLLM computes in; `sleep_level` says what it gives back of a card when
    it sleeps, and `tensor_parallel` on how many devices it computes. Raises ConfigurationError for an unknown name, and
    when the engine's package is not installed.
    """
    if name == "vllm":
        from turnwise.policy.engines.vllm import VllmEngine

        return VllmEngine(
            device=device,
            threads=threads,
            context_length=context_length,
            maximum_episodes=maximum_episodes,
            precision=precision,
            sleep_level=sleep_level,
            tensor_parallel=tensor_parallel,
        )
    if name == "embedded":
        from turnwise.policy.engines.embedded import EmbeddedEngine

        return EmbeddedEngine(
            device=device, threads=threads, context_length=context_length, maximum_episodes=maximum_episodes
        )
    raise ConfigurationError(f"engine must be one of vllm, embedded; found {name!r}", "TW-unknown-engine")


_resident: dict[tuple[Any, ...], Engine] = {}


def resident_engine(name: EngineName, *, spread: EngineSpread = ALONE, **options: Any) -> Engine:
    """The process's resident engine with these options, `make_engine`'s: made at the first call, shared by later ones.

    An engine takes seconds to start and a gigabyte of memory, so a call with other options closes the resident one.
    With a `spread` over processes it stands for all of them. What learners have freed is returned to the system first.
    """
    return_freed_memory()
    key = (name, spread, *sorted(options.items()))
    if key not in _resident:
        close_resident_engine()
        # A rollout makes so many objects that the collector goes over all others, too: those that imports left, a third
        # of a second each time. It skips frozen ones.
        gc.freeze()
        compute_reproducibly()
        _resident[key] = (
            EnginesOnProcesses(spread, name=name, **options) if spread.in_processes else make_engine(name, **options)
        )
    return _resident[key]


def rest_resident_engine() -> None:
    """Let the resident engine give memory back, where it was made to, before a learner or a critic computes.

    What has been freed so far, by an engine or by other learners, is returned to the system.
    """
    return_freed_memory()
    for engine in _resident.values():
        if isinstance(engine, Sleeps):
            engine.sleep()


def close_resident_engine() -> None:
    """Close the resident engine, if there is one."""
    while _resident:
        _, engine = _resident.popitem()
        engine.close()
