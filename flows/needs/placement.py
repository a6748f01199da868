"""Where the processes of one run sit, and what is in the memory of a card, or of the host, where several of them train.

With N learner processes (`compute.learner_processes`), of which each has a card, the first card takes the most:

    sliced      weights, moments, gradients, the reference policy, a critic, the policy that sampled       1 / N
    of each     activations and logits of a micro-batch, and the weights that are gathered around them     whole
    shared      the engine, which stays on the first card                                                  whole

On the CPU all N share one memory: slices are whole together, and what each has counts N times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnwise.config.model_settings import Compute
from turnwise.policy.memory_plan import ModelMemory

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


def spread(parts: Mapping[str, int], compute: Compute, model: ModelMemory, *, samples: bool) -> dict[str, int]:
    """The parts of a phase, in bytes, on the first card, or on the CPU of all processes of the run.

    `samples`: whether the engine computes in this phase, and no learner process.
    """
    size, on_card = compute.learner_processes, compute.device != "cpu"
    if size == 1:
        return dict(parts)
    found: dict[str, int] = {}
    for name, number in parts.items():
        if name == "libraries":
            found[name] = number * (2 if on_card else size + 1)
        elif name in SLICED:
            found[name] = -(-number // size) if on_card else number
        elif name.startswith("engine") or samples:
            found[name] = number
        else:
            found[name] = number if on_card else number * size
    if not samples:
        found[GATHERED] = model.gathered * (1 if on_card else size)
    return found


def placement(compute: Compute) -> Iterator[tuple[str, str]]:
    """Where the processes of one run sit: what sits there, by place."""
    size, engine = compute.learner_processes, f"{compute.engine}, in the run's own process"
    place = "host" if compute.device == "cpu" else "card 0"
    if size == 1:
        yield place, f"{engine}; the learner, in the same"
    elif place == "host":
        yield place, f"{engine}; {size} learner processes"
    else:
        yield place, f"{engine}; learner process 0 of {size}"
        others = f"cards 1 to {size - 1}" if size > 2 else "card 1"
        yield others, "a learner process each" if size > 2 else "learner process 1"
