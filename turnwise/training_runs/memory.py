"""The memory that one process of an ablation takes on its device, phase by phase, estimated before anything is loaded.

A process holds one learner, one engine and, where a run has them, a reference policy, a critic and a teacher, from the
first iteration to the last; an engine that sleeps (`compute.sleep_level`) holds nothing while the others compute. The
reference policy of an adapter is the learner's own model with the adapter off. What comes on top differs by phase:

    warm start    gradients, activations and logits of the supervised steps; nothing of the later iterations
    sampling      the engine's activations, or what it takes to hand weights over to it, whichever is more
    scoring       activations and logits without a backward pass: of the reference policy, critic, probe, teacher
    update        gradients, activations and logits; with `rollout.lag` the policy that sampled
    critic        gradients and activations of a critic with a trunk of its own

`turnwise.policy.memory_plan` has the arithmetic, `activations` that of checkpointing, and the end of this file that of
several processes. The peak is that of the phase that takes the most.

With N learner processes (`compute.learner_processes`), of which each has a card, the first card takes the most:

    sliced      weights, moments, gradients, the reference policy, a critic, the policy that sampled       1 / N
    of each     activations and logits of a micro-batch, and the weights that are gathered around them     whole
    shared      the engine that is on the first card                                                       whole

Engines of their own processes (`compute.engines`, `compute.tensor_parallel`) begin with the first card, or are on
others (`compute.engines_apart`); what an engine takes of a card is that of one of its devices.

On the CPU all share one memory: slices are whole together, and what each process has counts as often as there are of
them.

The plan is within 15 % of the peak that is measured (`python -m benchmarks.memory`). So a run is refused only where
even that much less would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import groupby
from typing import Any

from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE
from turnwise.config.model_settings import Adapter, Compute, ModelSettings
from turnwise.config.overlays import merged
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, build
from turnwise.policy.device_memory import device_bytes, free_bytes
from turnwise.policy.dimensions import Dimensions, dimensions_of
from turnwise.policy.engines.processes import EngineSpread
from turnwise.policy.memory_plan import GIB, LIBRARIES, EngineMemory, ModelMemory
from turnwise.policy.pretrained import asks_hub, pretrained, pretrained_folder
from turnwise.policy.sizes import covered


def activations(model: ModelMemory, tokens: int, logits: int) -> int:
    """What a micro-batch of so many tokens takes at the peak of its passes besides `logits`, in bytes.

    On a card with gradient checkpointing it is the largest of three moments. All the time the inputs of the layers are
    kept, 4 h bytes of a token and layer, 2 h with an adapter in bfloat16, where states are rounded. On top of them
    come, one after the other,

    * at the end of the forward pass the weights of all linear layers as autocast has rounded them, which it keeps until
      the trunk is through, and one layer;
    * the logits, and the gradient of the output layer;
    * in the backward pass one layer at a time with its gradients, and the gradient of an output layer that is tied to
      the embedding, which waits for the embedding's.

    `python -m benchmarks.allocations` compares this with a trace of the allocations. On the CPU the C library does not
    give to the one all that it has from the other: there `turnwise.policy.memory_plan` counts them together.

    `logits` are those of `ModelMemory.logits`, or 0 for a critic, which has none.
    """
    if model.device != "cuda" or not model.settings.gradient_checkpointing:
        return model.activations(tokens)
    wide, adapted = model.dimensions, model.settings.adapter is not None
    rounded_layer = model.scoring(0)
    layer = model.scoring(tokens) - rounded_layer
    bytes_per_number = 2 if adapted and model.settings.precision == "bfloat16" else 4
    inputs = bytes_per_number * wide.hidden * wide.layers * tokens
    forward = wide.layers * rounded_layer + layer
    waits = logits and not adapted and not any(name.endswith("lm_head.weight") for name in wide.shapes)
    backward = 2 * layer + rounded_layer + (4 * wide.vocabulary * wide.hidden if waits else 0)
    return inputs + max(0, max(forward, backward) - logits)


SAMPLING = "sampling"
"""The phase in which an engine that sleeps (`compute.sleep_level`) is awake."""
APART = "engine"
"""Not a phase, but a card by itself, which is planned like one: `compute.engines_apart`."""
Parts = Mapping[str, int]
"""Bytes on the device, by what they hold."""


@dataclass(frozen=True)
class PlannedPhase:
    """A phase of a process's life, and everything that is in memory during it."""

    name: str
    parts: Parts

    @property
    def bytes(self) -> int:
        """All parts together."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class MemoryPlan:
    """What one process of a variant takes on its device."""

    variant: str
    phases: tuple[PlannedPhase, ...]

    @property
    def peak(self) -> PlannedPhase:
        """The phase that takes the most."""
        return max(self.phases, key=lambda phase: phase.bytes)


def largest_plan(experiment: Experiment, dimensions: Dimensions) -> MemoryPlan:
    """The plan of the variant whose peak is the highest."""
    plans = [memory_plan(experiment.variant(name), dimensions, name) for name in experiment.ablation.variants]
    return max(plans, key=lambda plan: plan.peak.bytes)


def memory_plan(own: Experiment, dimensions: Dimensions, variant: str) -> MemoryPlan:
    """The plan of one variant, `own`, with a policy of these dimensions."""
    engine = _engine(own, dimensions)
    graphs = {"engine: CUDA graphs": engine.graphs} if engine.graphs else {}
    always = {"libraries": libraries(own.compute), **graphs}  # an engine that sleeps keeps its graphs
    engine_parts = {"engine: weights": engine.weights, "engine: cache": engine.cache}
    phases = [*_warm_start(own, dimensions), *_iteration(own, dimensions, engine)]
    planned_phases = [
        PlannedPhase(
            name,
            spread(
                {**always, **({} if own.compute.sleep_level and name != SAMPLING else engine_parts), **parts},
                own.compute,
                _model(own, dimensions),
                samples=name == SAMPLING,
            ),
        )
        for name, parts in phases
    ]
    if own.compute.engines_apart:
        engine_card_parts = {"libraries": LIBRARIES[own.compute.device][own.compute.engine], **graphs, **engine_parts}
        planned_phases.append(
            PlannedPhase(APART, {**engine_card_parts, "activations": max(engine.sampling, engine.handing_over)})
        )
    return MemoryPlan(variant, tuple(planned_phases))


def _warm_start(own: Experiment, dimensions: Dimensions) -> Iterator[tuple[str, Parts]]:
    """The SFT warm start, which trains all weights."""
    if not own.warm_start.enabled:
        return
    model = _model(own, dimensions)
    tokens = _most_tokens(own, own.warm_start.micro_batch_tokens)
    yield "warm start", {**_resident_bytes(model), **_training(model, tokens)}


def _iteration(own: Experiment, dimensions: Dimensions, engine: EngineMemory) -> Iterator[tuple[str, Parts]]:
    """The phases of an iteration."""
    optimization, compute = own.optimization, own.compute
    whole = _model(own, dimensions)
    learner = replace(whole, settings=ModelSettings.taken_from(compute, adapter=optimization.adapter))
    tokens = _most_tokens(own, optimization.micro_batch_tokens)
    critic = _critic(own, whole)
    resident = _resident_bytes(learner)
    asks_reference = optimization.reference is not None or own.monitors.probe_every is not None
    if asks_reference and optimization.adapter is None:
        resident["reference policy"] = whole.weights
    teacher = _teacher(own, whole)
    if teacher is not None:
        resident["teacher"] = teacher.weights
    if critic is not None:
        resident["critic: weights, moments"] = critic.weights + critic.moments
    yield SAMPLING, {**resident, "activations": max(engine.sampling, engine.handing_over)}
    if asks_reference or critic is not None or teacher is not None:
        scorer = learner if asks_reference and optimization.adapter is not None else whole
        scorers = [scorer] if teacher is None else [teacher, scorer]
        largest = max(scorers, key=lambda model: model.scoring(tokens) + model.logits(tokens, training=False))
        scoring = {"activations": largest.scoring(tokens), "logits": largest.logits(tokens, training=False)}
        yield "scoring", {**resident, **scoring}
    entropy = optimization.method == "reinforcement" and optimization.entropy_coefficient > 0
    sampler = {"policy that sampled": whole.weights} if own.rollout.lag else {}
    yield "update", {**resident, **sampler, **_training(learner, tokens, entropy_gradient=entropy)}
    if critic is not None:
        tokens = _most_tokens(own, own.critic.micro_batch_tokens)
        training = {"gradients": critic.gradients, "activations": activations(critic, tokens, 0)}
        yield "critic", {**resident, **training, **_fragmentation(critic, tokens)}


def _resident_bytes(model: ModelMemory) -> dict[str, int]:
    return {"weights": model.weights, "moments": model.moments}


def _training(model: ModelMemory, tokens: int, *, entropy_gradient: bool = False) -> Parts:
    logits = model.logits(tokens, entropy_gradient=entropy_gradient)
    return {
        "gradients": model.gradients,
        "activations": activations(model, tokens, logits),
        "logits": logits,
        **_fragmentation(model, tokens),
    }


def _fragmentation(model: ModelMemory, tokens: int) -> Parts:
    size = model.fragmentation(tokens)
    return {"freed, not returned": size} if size else {}


def _model(own: Experiment, dimensions: Dimensions) -> ModelMemory:
    """The policy with all weights in float32: in the warm start, as the reference, and as the policy that sampled."""
    compute = own.compute
    return ModelMemory(dimensions, ModelSettings.taken_from(compute), compute.device, compute.learner_processes)


def _teacher(own: Experiment, whole: ModelMemory) -> ModelMemory | None:
    """The model that the policy learns from, the largest of several; None: none, or not known here."""
    sections = (own.policy.model_copy(update={"model": name, "revision": None}) for name in own.teachers.values())
    teachers = [replace(whole, dimensions=wide) for section in sections if (wide := dimensions_of(section)) is not None]
    return max(teachers, key=lambda model: model.weights, default=None)


def _critic(own: Experiment, whole: ModelMemory) -> ModelMemory | None:
    """A critic with a trunk of its own: the policy without its output layer."""
    if not own.has_critic or own.critic_on_trunk:
        return None
    dimensions = whole.dimensions
    trunk = {name: shape for name, shape in dimensions.shapes.items() if not name.endswith("lm_head.weight")}
    return replace(whole, dimensions=replace(dimensions, shapes=trunk))


def _most_tokens(own: Experiment, micro_batch_tokens: int) -> int:
    """Of a micro-batch: a sequence that is longer than the budget has one of its own."""
    return max(micro_batch_tokens, own.agent.context_tokens)


def _engine(own: Experiment, dimensions: Dimensions) -> EngineMemory:
    """One engine, or the one with the most groups of several."""
    rollout, data, evaluation, engines = own.rollout, own.data, own.evaluation, own.compute.engines
    groups = -(-rollout.prompts // engines)
    trained = MOST_EPISODES_AT_ONCE if rollout.scheme == "branching" else groups * rollout.group_size
    evaluated = -(-max(data.validation_tasks, data.test_tasks) // engines) * max(1, evaluation.samples)
    return EngineMemory(
        dimensions,
        own.compute.engine,
        own.compute.device,
        own.compute.precision,
        own.agent.context_tokens,
        most_episodes=MOST_EPISODES_AT_ONCE,
        episodes=min(MOST_EPISODES_AT_ONCE, max(trained, evaluated)),
        tensor_parallel=own.compute.tensor_parallel,
    )


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
    if asks_hub(experiment.policy.model) and (model := pretrained(experiment.policy)) is not None:
        pretrained_folder(model)
    dimensions = dimensions_of(experiment.policy)
    if dimensions is None:  # a GGUF of an architecture that only transformers knows
        return
    plan, running = largest_plan(experiment, dimensions), min(processes, experiment.ablation.runs_at_once)
    if fits(running * plan.peak.bytes, available) is not False:
        return
    remedy_texts = [f"{each.options} ({each.peak / GIB:,.1f} GiB)" for each in remedies(experiment, dimensions)]
    peak = f"{plan.peak.bytes / GIB:,.1f} GiB" + (f" for each of {running} processes" if running > 1 else "")
    remedy_texts += ["fewer --processes"] if running > 1 else []
    raise ConfigurationError(
        f"the ablation must fit into the memory of {experiment.compute.device}, {available / GIB:,.1f} GiB; by the "
        f"plan {plan.variant} takes {peak} in its phase {plan.peak.name} ({parts_of(plan)}). "
        f"What would change it: {'; '.join([*remedy_texts, 'a smaller policy, or a device with more memory'])}. "
        "turnwise ablation --dry-run prints the whole plan",
        "TW-small-memory",
    )


def crowded(experiment: Experiment, processes: int = 1) -> str | None:
    """A warning where other programs have left less of the device's memory than the ablation takes by its plan; None
    where it fits, or where nothing says what is left.
    """
    free, dimensions = free_bytes(experiment.compute.device), dimensions_of(experiment.policy)
    if free is None or dimensions is None:
        return None
    running = min(processes, experiment.ablation.runs_at_once)
    needed = running * largest_plan(experiment, dimensions).peak.bytes
    if fits(needed, free) is not False:
        return None
    takes = f"{running} processes take" if running > 1 else "the ablation takes"
    fewer = "with fewer --processes, or " if running > 1 else ""
    return (
        f"other programs have left {free / GIB:,.1f} GiB of memory, and by the plan {takes} {needed / GIB:,.1f}: the "
        f"system may kill a process. Run it {fewer}when they have ended"
    )


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
    """The settings that lower the peak, each by itself, the most effective first; and all of them together.

    Settings that the experiment's other settings do not allow are left out.
    """
    before = largest_plan(experiment, dimensions).peak.bytes
    changes = dict(_changes(experiment, dimensions))
    smaller = [
        Remedy(options, peak)
        for options, change in changes.items()
        if (peak := _peak_after(experiment, change, dimensions)) is not None and peak < before
    ]
    smaller.sort(key=lambda remedy: remedy.peak)
    if len(smaller) < 2:
        return smaller
    everything: Mapping[str, Any] = {}
    for remedy in smaller:
        everything = merged(everything, changes[remedy.options])
    together = _peak_after(experiment, everything, dimensions)
    return smaller if together is None else [*smaller, Remedy("all of these", together)]


def _peak_after(experiment: Experiment, change: Mapping[str, Any], dimensions: Dimensions) -> int | None:
    """The peak in bytes with other settings; None where the configuration does not allow them."""
    try:
        changed = build(merged(experiment.model_dump(mode="json"), change), like=experiment)
        return largest_plan(changed, dimensions).peak.bytes
    except ConfigurationError:
        return None


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
        shared_trunk = {"trunk": "policy", "coefficient": 0.5, "initial": "policy"}
        initial = " -s critic.initial=policy" if experiment.critic.initial == "random" else ""
        yield f"-s critic.trunk=policy -s critic.coefficient=0.5{initial}", {"critic": shared_trunk}
    if experiment.monitors.probe_every is not None and optimization.reference is None:
        yield "-s monitors.probe_every=null", {"monitors": {"probe_every": None}}


SLICED = ("weights", "moments", "gradients", "reference policy", "critic: weights, moments", "policy that sampled")
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
    shares: dict[str, int] = {}
    for name, number in parts.items():
        if name in ("libraries", "teacher"):
            shares[name] = number
        elif name in SLICED:
            shares[name] = -(-number // size) if on_card else number
        elif name.startswith("engine") or samples:
            shares[name] = number if on_card else number * compute.engines * compute.tensor_parallel
            if compute.engines_apart:
                del shares[name]
        else:
            shares[name] = number if on_card else number * size
    if size > 1 and not samples:
        shares[GATHERED] = model.gathered * (1 if on_card else size)
    return shares


def placement(compute: Compute) -> Iterator[tuple[str, str]]:
    """Where the processes of one run sit: what sits there, by place."""
    if compute.device == "cpu":
        yield "host", _on_the_host(compute)
        return
    yield "card 0", "; ".join(filter(None, (_engine_on(compute, 0), _learner_on(compute, 0))))
    kinds = groupby(
        range(1, compute.cards), lambda card: (_has_engine(compute, card), card < compute.learner_processes)
    )
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
    parts = f" of {compute.tensor_parallel} parts" if compute.tensor_parallel > 1 else ""
    learner = "the learner, in the run's own process" if size == 1 else f"{size} learner processes"
    return f"{engines}{parts}, a process each; {learner}"


def _has_engine(compute: Compute, card: int) -> bool:
    return 0 <= card - compute.first_engine_card < compute.engines * compute.tensor_parallel


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
