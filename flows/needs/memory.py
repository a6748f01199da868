"""The memory that one process of an ablation takes on its device, phase by phase, estimated before anything is loaded.

A process holds one learner, one engine and, where a run has them, a reference policy and a critic, from the first
iteration to the last; an engine that sleeps (`compute.sleep_level`) holds nothing while the others compute. The
reference policy of an adapter is the learner's own model with the adapter off. What comes on top differs by phase:

    warm start    gradients, activations and logits of the supervised steps; nothing of the later iterations
    sampling      the engine's activations, or what it takes to hand weights over to it, whichever is more
    scoring       activations and logits without a backward pass: of the reference policy, the critic, a probe
    update        gradients, activations and logits; with `rollout.lag` the policy that sampled
    critic        gradients and activations of a critic with a trunk of its own

`turnwise.policy.memory_plan` has the arithmetic, `turnwise.policy.checkpointing_plan` that of checkpointing on a card,
and `flows.needs.placement` that of several learner processes. The peak is that of the phase that takes the most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from flows.needs.placement import libraries, spread
from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE
from turnwise.config.model_settings import ModelSettings
from turnwise.experiment import Experiment
from turnwise.policy.checkpointing_plan import activations
from turnwise.policy.dimensions import Dimensions
from turnwise.policy.memory_plan import LIBRARIES, EngineMemory, ModelMemory

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
    of_engine = {"engine: weights": engine.weights, "engine: cache": engine.cache}
    phases = [*_warm_start(own, dimensions), *_iteration(own, dimensions, engine)]
    planned = [
        PlannedPhase(
            name,
            spread(
                {**always, **({} if own.compute.sleep_level and name != SAMPLING else of_engine), **parts},
                own.compute,
                _model(own, dimensions),
                samples=name == SAMPLING,
            ),
        )
        for name, parts in phases
    ]
    if own.compute.engines_apart:
        of_its_card = {"libraries": LIBRARIES[own.compute.device][own.compute.engine], **graphs, **of_engine}
        planned.append(PlannedPhase(APART, {**of_its_card, "activations": max(engine.sampling, engine.handing_over)}))
    return MemoryPlan(variant, tuple(planned))


def _warm_start(own: Experiment, dimensions: Dimensions) -> Iterator[tuple[str, Parts]]:
    """The SFT warm start, which trains all weights."""
    if not own.warm_start.enabled:
        return
    model = _model(own, dimensions)
    tokens = _most_tokens(own, own.warm_start.micro_batch_tokens)
    yield "warm start", {**_held(model), **_training(model, tokens)}


def _iteration(own: Experiment, dimensions: Dimensions, engine: EngineMemory) -> Iterator[tuple[str, Parts]]:
    """The phases of an iteration."""
    optimization, compute = own.optimization, own.compute
    whole = _model(own, dimensions)
    learner = replace(whole, settings=ModelSettings.taken_from(compute, adapter=optimization.adapter))
    tokens = _most_tokens(own, optimization.micro_batch_tokens)
    critic = _critic(own, whole)
    held = _held(learner)
    asks_reference = optimization.reference is not None or own.monitors.probe_every is not None
    if asks_reference and optimization.adapter is None:
        held["reference policy"] = whole.weights
    if critic is not None:
        held["critic: weights, moments"] = critic.weights + critic.moments
    yield SAMPLING, {**held, "activations": max(engine.sampling, engine.handing_over)}
    if asks_reference or critic is not None:
        scorer = learner if asks_reference and optimization.adapter is not None else whole
        scoring = {"activations": scorer.scoring(tokens), "logits": scorer.logits(tokens, training=False)}
        yield "scoring", {**held, **scoring}
    entropy = optimization.method == "reinforcement" and optimization.entropy_coefficient > 0
    sampler = {"policy that sampled": whole.weights} if own.rollout.lag else {}
    yield "update", {**held, **sampler, **_training(learner, tokens, entropy_gradient=entropy)}
    if critic is not None:
        tokens = _most_tokens(own, own.critic.micro_batch_tokens)
        training = {"gradients": critic.gradients, "activations": activations(critic, tokens, 0)}
        yield "critic", {**held, **training, **_fragmentation(critic, tokens)}


def _held(model: ModelMemory) -> dict[str, int]:
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
