"""What an ablation needs of the disk and of memory at most, estimated before anything is computed.

Disk, with n weights of which t are trained: 4 n bytes of weights and 8 t of AdamW's moments for each policy, times the
policies of which the section `storage` keeps them, and once more whole while the next is written; 12 n for each critic
with a trunk of its own. Of episodes 12 bytes per token that may be sampled and 2 per token of a full context, measured
on the demo's Parquet files; of the records in Prefect and MLflow 60 kB per stage, measured there too.

Memory, of one process: 16 bytes per weight that is trained (weight, gradient, moments) and 4 per other, for the
learner, and 16 for each weight of a critic's own trunk; 4 for the reference policy; the activations of a micro-batch,
about 20 numbers of the hidden width per token and layer; the logits of a chunk, three times; the engine's weights, and
its keys and values. The libraries alone take about 2 GB with vLLM and 1 GB without, measured on the demo.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from tasks.observing import Observer, StageCall
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.pretrained import model_directory
from turnwise.policy.sizes import Shapes, count, covered, shapes_from_scratch, shapes_in, trained
from turnwise.reporting.formatting import readable_bytes
from turnwise.store.paths import home

BYTES_PER_SAMPLED_TOKEN, BYTES_PER_CONTEXT_TOKEN = 12, 2
BYTES_PER_STAGE = 60_000
STAGES_PER_ITERATION = 9
LIBRARIES = {"vllm": 2_000_000_000, "transformers": 1_000_000_000}
ACTIVATIONS_PER_LAYER = 20
ENGINE_CACHE_BYTES = 1_000_000_000
"""Keys and values, at most: an engine takes less for small policies."""


@dataclass(frozen=True)
class Played:
    """What an ablation plays at most."""

    episodes: int
    sampled_tokens: int


@dataclass(frozen=True)
class Needs:
    """In bytes."""

    policies: int
    """Weights, optimizer's states and critics that stay."""
    next_policy: int
    """One of each process, while it is written."""
    episodes: int
    records: int
    memory: int
    """Of one process."""

    @property
    def disk(self) -> int:
        """All of it."""
        return self.policies + self.next_policy + self.episodes + self.records


def shapes_of(experiment: Experiment) -> Shapes | None:
    """The weights of the policy; None where it is a hub's, which is not asked for a plan."""
    if experiment.policy.model == "scratch":
        return shapes_from_scratch(experiment.policy)
    folder = model_directory(experiment.policy.model)
    return shapes_in(folder) or None if folder else None


def needs(experiment: Experiment, shapes: Shapes, played: Played, processes: int = 1) -> Needs:
    """What the ablation needs with a policy of these weights."""
    variants = [experiment.variant(name) for name in experiment.ablation.variants]
    seeds = len(experiment.ablation.seeds)
    evaluations = [-(-own.optimization.iterations // own.evaluation.every) for own in variants]
    stages = [
        STAGES_PER_ITERATION * own.optimization.iterations + 3 + evaluated
        for own, evaluated in zip(variants, evaluations, strict=True)
    ]
    return Needs(
        policies=8 * count(shapes) + sum(seeds * _kept_of_run(own, shapes) for own in variants),
        next_policy=processes * max(sum(_of_iteration(own, shapes)) for own in variants),
        episodes=played.sampled_tokens * BYTES_PER_SAMPLED_TOKEN
        + played.episodes * experiment.agent.context_tokens * BYTES_PER_CONTEXT_TOKEN,
        records=BYTES_PER_STAGE * seeds * sum(stages),
        memory=max(_memory(own, shapes) for own in variants),
    )


def _of_iteration(own: Experiment, shapes: Shapes) -> tuple[int, int]:
    """The bytes of a policy's weights, and of what else training goes on from."""
    adapter = own.optimization.adapter
    state = 8 * trained(shapes, adapter)
    if adapter is not None:
        state += 4 * (trained(shapes, adapter) + count(covered(shapes, adapter)))
    if own.has_critic and not own.critic_on_trunk:
        state += 12 * count(shapes)
    return 4 * count(shapes), state


def _kept_of_run(own: Experiment, shapes: Shapes) -> int:
    """The bytes of policies and critics that stay of one run."""
    storage, iterations = own.storage, own.optimization.iterations
    weights, state = _of_iteration(own, shapes)
    evaluated = -(-iterations // own.evaluation.every) if storage.keep_evaluated else storage.keep_best
    last = iterations if storage.keep_last is None else storage.keep_last
    whole = iterations if storage.keep_optimizer is None else storage.keep_optimizer
    whole += own.alarms.response == "return"
    return min(iterations, last + evaluated) * weights + min(iterations, whole) * (weights + state)


def _memory(own: Experiment, shapes: Shapes) -> int:
    compute, total = own.compute, count(shapes)
    learned = trained(shapes, own.optimization.adapter)
    learner = 16 * learned + 4 * (total - learned if own.optimization.adapter else 0)
    critic = 16 * total if own.has_critic and not own.critic_on_trunk else 0
    width = max(shape[-1] for shape in shapes.values())
    layers = sum(name.endswith("down_proj.weight") for name in shapes) or 1
    kept = 1 if compute.gradient_checkpointing else ACTIVATIONS_PER_LAYER
    activations = 4 * own.optimization.micro_batch_tokens * width * layers * kept
    vocabulary = max(shape[0] for shape in shapes.values())
    logits = 3 * 4 * min(compute.logit_chunk_tokens, own.optimization.micro_batch_tokens) * vocabulary
    engine = 4 * total + min(ENGINE_CACHE_BYTES, 8 * 256 * own.agent.context_tokens * layers * width)
    return LIBRARIES[compute.engine] + learner + critic + 4 * total + activations + logits + engine


def free_disk() -> int:
    """The bytes that are free where the home lies, or will."""
    return shutil.disk_usage(next(place for place in (home(), *home().parents) if place.exists())).free


class DiskGuard(Observer):
    """Refuses an ablation once it turns out that something of it must be computed, unless the disk has room for it.

    What the home holds may be of this ablation, and counts as if it were.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._checked = False

    def finished(self, call: StageCall) -> None:
        """A stage has returned.

        Raises:
            ConfigurationError: it was the first that was computed, and the disk has too little room.
        """
        if call.cached or self._checked:
            return
        self._checked = True
        free = free_disk()
        if free >= self._needed:
            return
        lacking = self._needed - sum(path.stat().st_size for path in home().rglob("*") if path.is_file())
        if free < lacking:
            raise ConfigurationError(
                f"the disk of {home()} must have room for what this ablation makes, {readable_bytes(lacking)} at most; "
                f"{readable_bytes(free)} are free: make room (turnwise prune), keep less (the section storage), or set "
                "TURNWISE_HOME to a folder on another disk"
            )
