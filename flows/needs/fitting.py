"""Whether the processes of an ablation fit into the memory of their device, and what to change where they do not.

The plan is within 15 % of the peak that is measured (`python -m benchmarks.memory`). So a run is refused only where
even that much less would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from flows.needs.memory import MemoryPlan, largest_plan
from turnwise.config.model_settings import Adapter
from turnwise.config.overlays import merged
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build
from turnwise.policy.device_memory import device_bytes
from turnwise.policy.dimensions import Dimensions, dimensions_of
from turnwise.policy.memory_plan import GIB
from turnwise.policy.pretrained import asks_hub, pretrained, pretrained_folder
from turnwise.policy.sizes import covered

TOLERANCE = 0.15
"""The share by which a plan may be above or below the measured peak."""
SMALLER_CHUNK_TOKENS = 512


@dataclass(frozen=True)
class Remedy:
    """Settings that lower the peak, as options of the command line, and the peak with them in bytes."""

    options: str
    peak: int


def require_memory(experiment: Experiment, processes: int = 1) -> None:
    """Raise ConfigurationError where the ablation cannot fit into the memory of its device.

    A model on a hub is downloaded first, as the run would do next. A device that is not there is another check's
    subject.
    """
    available = device_bytes(experiment.compute.device)
    if available is None:
        return
    if asks_hub(experiment.policy.model) and (found := pretrained(experiment.policy)) is not None:
        pretrained_folder(found)
    dimensions = dimensions_of(experiment.policy)
    if dimensions is None:  # a GGUF of an architecture that only transformers knows
        return
    plan, running = largest_plan(experiment, dimensions), processes_with_runs(experiment, processes)
    if fits(running * plan.peak.bytes, available) is not False:
        return
    offered = [f"{each.options} ({each.peak / GIB:,.1f} GiB)" for each in remedies(experiment, dimensions)]
    taken = f"{plan.peak.bytes / GIB:,.1f} GiB" + (f" for each of {running} processes" if running > 1 else "")
    offered += ["fewer --processes"] if running > 1 else []
    raise ConfigurationError(
        f"the ablation must fit into the memory of {experiment.compute.device}, {available / GIB:,.1f} GiB; by the "
        f"plan {plan.variant} takes {taken} in its phase {plan.peak.name} ({parts_of(plan)}). "
        f"What would change it: {'; '.join([*offered, 'a smaller policy, or a device with more memory'])}. "
        "turnwise ablation --dry-run prints the whole plan"
    )


def processes_with_runs(experiment: Experiment, processes: int) -> int:
    """The number of processes that train at the same time."""
    return min(processes, len(experiment.ablation.variants) * len(experiment.ablation.seeds))


def fits(needed: int, available: int) -> bool | None:
    """Whether this many bytes fit; None where it cannot be said, within the plan's tolerance."""
    if needed <= available:
        return True
    return None if needed <= available * (1 + TOLERANCE) else False


def parts_of(plan: MemoryPlan) -> str:
    """The parts of the plan's peak, the largest first."""
    parts = sorted(plan.peak.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {size / GIB:,.1f}" for name, size in parts if size >= 0.05 * GIB)


def remedies(experiment: Experiment, dimensions: Dimensions) -> list[Remedy]:
    """The settings that lower the peak, each by itself, the most effective first; and all of them together."""
    before = largest_plan(experiment, dimensions).peak.bytes
    changes = dict(_changes(experiment, dimensions))
    found = [
        Remedy(options, peak)
        for options, change in changes.items()
        if (peak := largest_plan(_changed(experiment, change), dimensions).peak.bytes) < before
    ]
    found.sort(key=lambda remedy: remedy.peak)
    if len(found) < 2:
        return found
    everything: Mapping[str, Any] = {}
    for remedy in found:
        everything = merged(everything, changes[remedy.options])
    together = largest_plan(_changed(experiment, everything), dimensions).peak.bytes
    return [*found, Remedy("all of these", together)]


def _changed(experiment: Experiment, change: Mapping[str, Any]) -> Experiment:
    return build(merged(experiment.model_dump(mode="json"), change), like=experiment)


def _changes(experiment: Experiment, dimensions: Dimensions) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every setting that may lower the memory of this experiment, as an option and as values."""
    compute, optimization, tokens = experiment.compute, experiment.optimization, experiment.agent.context_tokens
    adapter = {"rank": 8, "alpha": 16}
    sliced = compute.learner_processes > 1  # what `require_processes` refuses is no remedy
    if not sliced and optimization.adapter is None and covered(dimensions.shapes, Adapter.model_validate(adapter)):
        yield "-s 'optimization.adapter={rank: 8, alpha: 16}'", {"optimization": {"adapter": adapter}}
    if not compute.gradient_checkpointing:
        yield "-s compute.gradient_checkpointing=true", {"compute": {"gradient_checkpointing": True}}
    if not (sliced or compute.offload_moments):
        if compute.moments == "float32":
            smaller = "bfloat16" if find_spec("torchao") is None else "8-bit"
            yield f"-s compute.moments={smaller}", {"compute": {"moments": smaller}}
        if compute.device == "cuda":
            yield "-s compute.offload_moments=true", {"compute": {"offload_moments": True}}
    if (compute.device, compute.engine, compute.sleep_level) == ("cuda", "vllm", 0):
        yield "-s compute.sleep_level=2", {"compute": {"sleep_level": 2}}
    if compute.logit_chunk_tokens > SMALLER_CHUNK_TOKENS:
        chunk = {"logit_chunk_tokens": SMALLER_CHUNK_TOKENS}
        yield f"-s compute.logit_chunk_tokens={SMALLER_CHUNK_TOKENS}", {"compute": chunk}
    if compute.device == "cuda" and compute.precision == "float32":
        yield "-s compute.precision=bfloat16", {"compute": {"precision": "bfloat16"}}
    if optimization.micro_batch_tokens > tokens:
        change = {"optimization": {"micro_batch_tokens": tokens}}
        yield f"-s optimization.micro_batch_tokens={tokens}", change
    if experiment.critic.micro_batch_tokens > tokens:
        yield f"-s critic.micro_batch_tokens={tokens}", {"critic": {"micro_batch_tokens": tokens}}
    if experiment.warm_start.enabled and experiment.warm_start.micro_batch_tokens > tokens:
        yield f"-s warm_start.micro_batch_tokens={tokens}", {"warm_start": {"micro_batch_tokens": tokens}}
    if experiment.critic.trunk == "own":
        shared = {"trunk": "policy", "coefficient": 0.5, "initial": "policy"}
        yield "-s critic.trunk=policy -s critic.coefficient=0.5", {"critic": shared}
    if experiment.monitors.probe_every is not None and optimization.reference is None:
        yield "-s monitors.probe_every=null", {"monitors": {"probe_every": None}}
