"""Where the processes of one run sit, and what is in the memory of a card, or of the host, where there are several.

With N learner processes (`compute.learner_processes`), of which each has a card, the first card takes the most:

    sliced      weights, moments, gradients, the reference policy, a critic, the policy that sampled       1 / N
    of each     activations and logits of a micro-batch, and the weights that are gathered around them     whole
    shared      the engine that is on the first card                                                       whole

Engines of their own processes (`compute.engines`, `compute.tensor_parallel`) begin with the first card, or are on
others (`compute.engines_apart`); what an engine takes of a card is that of one of its devices.

On the CPU all share one memory: slices are whole together, and what each process has counts as often as there are of
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from turnwise.config.model_settings import Compute
from turnwise.policy.engines.processes import EngineSpread
from turnwise.policy.memory_plan import LIBRARIES, ModelMemory

SLICED = frozenset(
    {
        "weights",
        "moments",
        "gradients",
        "reference policy",
        "critic: weights, moments",
        "policy that sampled",
    }
)
GATHERED = "gathered weights, gradients"


def libraries(compute: Compute) -> int:
    """What the libraries of all processes take on the first card, or on the CPU, in bytes."""
    size, separate = compute.learner_processes, EngineSpread.of(compute).in_processes
    learners = size if size > 1 else 0
    if compute.device == "cpu":
        processes = 1 + learners + (_engine_processes(compute) if separate else 0)
    else:
        own = 1 if learners == 0 or not separate else 0  # this process has the learner, the engine or neither
        processes = own + min(1, learners) + (1 if separate and not compute.engines_apart else 0)
    return processes * LIBRARIES[compute.device][compute.engine]


def _engine_processes(compute: Compute) -> int:
    """Those of the engines, and with tensor parallelism those of their devices besides."""
    parallel = compute.tensor_parallel
    return compute.engines * (1 + parallel if parallel > 1 else 1)


def spread(parts: Mapping[str, int], compute: Compute, model: ModelMemory, *, samples: bool) -> dict[str, int]:
    """The parts of a phase, in bytes, on the first card, or on the CPU of all processes of the run.

    `samples`: whether the engine computes in this phase, and no learner process.
    """
    size, on_card = compute.learner_processes, compute.device != "cpu"
    found: dict[str, int] = {}
    for name, number in parts.items():
        if name == "libraries":
            found[name] = number
        elif size > 1 and name in SLICED:
            found[name] = -(-number // size) if on_card else number
        elif name in SLICED:
            found[name] = number
        elif name.startswith("engine") or samples:
            found[name] = number if on_card else number * compute.engines * compute.tensor_parallel
            if compute.engines_apart:
                del found[name]
        else:
            found[name] = number if on_card else number * size
    if size > 1 and not samples:
        found[GATHERED] = model.gathered * (1 if on_card else size)
    return found


def placement(compute: Compute) -> Iterator[tuple[str, str]]:
    """Where the processes of one run sit: what sits there, by place."""
    if compute.device == "cpu":
        yield "host", _on_the_host(compute)
        return
    yield "card 0", "; ".join(filter(None, (_engine_on(compute, 0), _learner_on(compute, 0))))
    kinds = groupby(range(1, compute.cards), lambda card: (_has_engine(compute, card), _has_learner(compute, card)))
    for (engine, learner), group in kinds:
        cards = list(group)
        if len(cards) == 1:
            learner_words = f"learner process {cards[0]}" if learner else ""
            yield f"card {cards[0]}", "; ".join(filter(None, (_engine_on(compute, cards[0]), learner_words)))
            continue
        part = "a part of an engine" if compute.tensor_parallel > 1 else "an engine"
        words = [part] * engine + ["a learner process"] * learner
        yield f"cards {cards[0]} to {cards[-1]}", f"{' and '.join(words)} each"


def _on_the_host(compute: Compute) -> str:
    size = compute.learner_processes
    if not EngineSpread.of(compute).in_processes:
        learner = "the learner, in the same" if size == 1 else f"{size} learner processes"
        return f"{compute.engine}, in the run's own process; {learner}"
    engines = f"{compute.engines} engine{'s' * (compute.engines > 1)} ({compute.engine})"
    of_parts = f" of {compute.tensor_parallel} parts" if compute.tensor_parallel > 1 else ""
    learner = "the learner, in the run's own process" if size == 1 else f"{size} learner processes"
    return f"{engines}{of_parts}, a process each; {learner}"


def _has_engine(compute: Compute, card: int) -> bool:
    return 0 <= card - compute.first_engine_card < compute.engines * compute.tensor_parallel


def _has_learner(compute: Compute, card: int) -> bool:
    return card < compute.learner_processes


def _engine_on(compute: Compute, card: int) -> str:
    """The engine on a card; empty without one."""
    if not _has_engine(compute, card):
        return ""
    if not EngineSpread.of(compute).in_processes:
        return f"{compute.engine}, in the run's own process"
    engine, part = divmod(card - compute.first_engine_card, compute.tensor_parallel)
    of = f", part {part} of {compute.tensor_parallel}" if compute.tensor_parallel > 1 else ""
    return f"{compute.engine}, engine process {engine} of {compute.engines}{of}"


def _learner_on(compute: Compute, card: int) -> str:
    """The learner on the first card."""
    if compute.learner_processes > 1:
        return f"learner process {card} of {compute.learner_processes}"
    separate = EngineSpread.of(compute).in_processes
    return "the learner, in the run's own process" if separate else "the learner, in the same"
