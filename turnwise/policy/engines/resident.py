"""The one engine of a process: made by name when it is first asked for, and shared by all tasks after that."""

from __future__ import annotations

from turnwise.errors import ConfigurationError
from turnwise.policy.engines.contract import Engine, EngineName


def make_engine(
    name: EngineName, *, device: str = "cpu", threads: int = 1, context_length: int, maximum_episodes: int
) -> Engine:
    """An engine by name.

    `threads` is the number of CPU threads it computes with (results to the bit depend on it); `maximum_episodes` how
    many replies it samples side by side: further submissions wait their turn. Raises ConfigurationError when the
    engine's package is not installed.
    """
    if name == "vllm":
        from turnwise.policy.engines.vllm import VllmEngine

        return VllmEngine(
            device=device, threads=threads, context_length=context_length, maximum_episodes=maximum_episodes
        )
    if name == "transformers":
        from turnwise.policy.engines.transformers import TransformersEngine

        return TransformersEngine(
            device=device, threads=threads, context_length=context_length, maximum_episodes=maximum_episodes
        )
    raise ConfigurationError(f"engine must be one of vllm, transformers; found {name!r}")


_resident: dict[tuple[str, str, int, int, int], Engine] = {}


def resident_engine(
    name: EngineName, *, device: str = "cpu", threads: int = 1, context_length: int, maximum_episodes: int
) -> Engine:
    """The process's one engine of this kind: made at the first call, shared by all the tasks of the process after it.

    An engine takes seconds to start and a gigabyte to hold, so asking for another kind closes the one that is resident.
    """
    key = (name, device, threads, context_length, maximum_episodes)
    if key not in _resident:
        close_resident_engine()
        _resident[key] = make_engine(
            name,
            device=device,
            threads=threads,
            context_length=context_length,
            maximum_episodes=maximum_episodes,
        )
    return _resident[key]


def close_resident_engine() -> None:
    """Close the resident engine, if there is one."""
    while _resident:
        _, engine = _resident.popitem()
        engine.close()
