"""The section `compute` and the adapter, which `turnwise.policy.model` applies, and the sizes that go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.config.quantities import Batch, Processes, Seed, Threads, Tokens
from turnwise.config.schema import Section, is_one
from turnwise.errors import ConfigurationError

EngineName = Literal["vllm", "embedded"]
Precision = Literal["float32", "bfloat16"]
Moments = Literal["float32", "bfloat16", "8-bit"]
SleepLevel = Literal[0, 1, 2]
LINEAR_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of attention and feed-forward: all there are in policies made from scratch and in most others."""
HEAD_DIMENSIONS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""The dimensions of an attention head that vLLM's CPU kernels accept."""


def smallest_vocabulary(tags: Sequence[str]) -> int:
    """The smallest vocabulary of a tokenizer trained from scratch: 256 bytes, 3 control tokens, and a format's tags."""
    return 256 + 3 + len(tags)


def require_heads(hidden: int, heads: int, key_value_heads: int) -> None:
    """Raise ConfigurationError for a hidden size and numbers of heads that do not fit together."""
    if hidden % heads or hidden // heads % 2:
        raise ConfigurationError(
            f"hidden must be an even multiple of heads, since positions turn pairs of numbers; found hidden {hidden} "
            f"and heads {heads}",
            "TW-model-shape",
        )
    if heads % key_value_heads:
        raise ConfigurationError(
            f"heads must be a multiple of key_value_heads; found heads {heads}, key_value_heads {key_value_heads}",
            "TW-model-shape",
        )


def require_kernels(hidden: int, heads: int, engine: str) -> None:
    """Raise ConfigurationError where the engine's kernels refuse this head dimension; the embedded engine takes any."""
    if engine == "vllm" and hidden // heads not in HEAD_DIMENSIONS:
        allowed = ", ".join(map(str, HEAD_DIMENSIONS))
        raise ConfigurationError(
            f"hidden / heads must be one of {allowed} for vLLM's CPU attention; found {hidden} / {heads} = "
            f"{hidden // heads}: change hidden or heads, or set compute.engine to embedded",
            "TW-model-shape",
        )


def require_processes(compute: Compute, adapter: Adapter | None, warm_start_optimizer: str | None = None) -> None:
    """Raise ConfigurationError for what several processes cannot slice: an adapter, compiled layers, held moments, and
    Muon, which a warm start may take for its optimizer.
    """
    if compute.learner_processes == 1:
        return
    for key, conflict, wanted in (
        ("compute.compiled", compute.compiled, "false"),
        ("compute.offload_moments", compute.offload_moments, "false"),
        ("compute.moments", compute.moments != "float32", "float32"),
        ("optimization.adapter", adapter, "null"),
        ("warm_start.optimizer", warm_start_optimizer == "muon", "adamw"),
    ):
        if conflict:
            raise ConfigurationError(
                f"{key} must be {wanted} where compute.learner_processes is above 1, since it cannot be sliced over "
                f"them; found compute.learner_processes: {compute.learner_processes}: set it to 1, or this to {wanted}",
                "TW-not-in-parallel",
            )


def require_parts(tensor_parallel: int, heads: int) -> None:
    """Raise ConfigurationError where an engine's devices cannot share the attention heads of a model."""
    if heads % tensor_parallel:
        raise ConfigurationError(
            f"compute.tensor_parallel must divide the policy's attention heads, {heads}, since each device computes as "
            f"many of them; found {tensor_parallel}: set it to a divisor of {heads}",
            "TW-engines-share",
        )


def require_engines(engines: int, prompts: int) -> None:
    """Raise ConfigurationError where an engine would get no group of a rollout."""
    if engines > prompts:
        raise ConfigurationError(
            f"compute.engines must be at most rollout.prompts, {prompts}, since a group is sampled by one engine; "
            f"found {engines}: lower it, or raise rollout.prompts",
            "TW-engines-share",
        )


class Adapter(Section):
    """A low-rank adapter (LoRA): each adapted layer adds (alpha / rank) B A to its weight."""

    rank: Batch
    alpha: Batch
    target_modules: Annotated[tuple[str, ...], Field(strict=False)] = LINEAR_LAYERS
    """The linear layers that have one, by the last part of their name."""
    seed: Seed = 0
    """Seed of the initial A."""

    @field_validator("target_modules")
    @classmethod
    def _require_layer(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ConfigurationError(
                "must name a linear layer; found none: leave it out for all layers", "TW-adapter-modules"
            )
        return names


def _is_default(value: object) -> bool:
    """Whether an option is at its default, and left out of what is recorded and compared: of keys and digests."""
    return value in ("float32", "all", False, 0)


class ModelOptions(Section):
    """How a model is held in memory and computed: what learner and critic read of the section `compute`."""

    precision: Precision = "float32"
    """What the learner and vLLM compute in; what is trained stays in float32. bfloat16 is for devices that have
    instructions for it. The embedded engine computes in float32 on the CPU, and elsewhere as the policy was saved."""
    gradient_checkpointing: bool = False
    """Compute every layer again in the backward pass instead of keeping what is inside it: a fraction of the memory for
    a third more arithmetic, and the same result."""
    compiled: bool = False
    """Compile the learner's layers (torch.compile), with g++ on the CPU and Triton on a card: a minute at the first
    batch, faster after it; results differ in their rounding."""
    logit_chunk_tokens: Tokens = 4096
    """Reply tokens whose logits are in memory at once. Where a micro-batch has more, its output layer is computed
    twice. Changes memory and speed, not what is computed."""
    counted_tokens: Annotated[Literal["all", "computed"], Field(exclude_if=_is_default)] = "all"
    """What `micro_batch_tokens` of the policy counts: all tokens of a micro-batch's sequences, or those that are
    computed. On the CPU, without an adapter and without compiling, what sequences begin with alike is computed once,
    and then counts a quarter in each further one: fewer micro-batches, in each of which it is computed. Elsewhere every
    token is computed and counts. Changes speed, and the result in its rounding."""
    moments: Annotated[Moments, Field(exclude_if=_is_default)] = "float32"
    """What AdamW's two moments are held in, those of a critic and of the warm start included: 8, 4 or 2 bytes for each
    trained weight. bfloat16 is rounded to stochastically, from a seed; 8-bit needs torchao, the extra low-memory."""
    offload_moments: Annotated[bool, Field(exclude_if=_is_default)] = False
    """Hold the moments in the host's memory; in every step they cross to the card and back. The same result to the
    bit."""


class Compute(ModelOptions):
    """Where the engine and the learner run, and how: the section `compute`."""

    device: Literal["cpu", "cuda"]
    """Of the engine and the learner."""
    engine: EngineName
    """vLLM in process; or the embedded engine, faster for tiny policies on a CPU, and there where vLLM does not
    install."""
    engine_threads: Threads
    """CPU threads that sample. Decoding a small policy is bound by overhead: one is as fast as two. Results to the bit
    depend on it."""
    learner_threads: Threads
    """CPU threads that train. Results to the bit depend on it."""

    sleep_level: Annotated[SleepLevel, Field(exclude_if=_is_default)] = 0
    """What vLLM gives back of a card while the learner computes. 0: nothing; 1: its cache, and its weights go to the
    host; 2: cache and weights, and it gets the weights again from the learner. No result depends on it."""
    learner_processes: Annotated[Processes, Field(exclude_if=is_one)] = 1
    """Processes that train the policy together, on a device of their own each: see `turnwise.policy.learner.processes`.
    Mini-batches are the same for any number, and results differ by rounding, so a number above 1 is part of the cache
    key. A saved policy goes on with any number."""
    engines: Annotated[Processes, Field(exclude_if=is_one)] = 1
    """Engines that share the groups of a rollout, each in a process of its own where there are several: see
    `turnwise.policy.engines.processes`. A number repeats to the bit, and another samples other replies, so a number
    above 1 is part of the cache key."""
    tensor_parallel: Annotated[Processes, Field(exclude_if=is_one)] = 1
    """Devices that one engine computes on together, for a policy too large for one: vLLM's tensor parallelism. It must
    divide the policy's attention heads. Results differ by rounding."""
    engines_apart: Annotated[bool, Field(exclude_if=_is_default)] = False
    """Whether the engines have cards of their own, after those of the learner; else they share them, from card 0 on. No
    result depends on it."""

    @property
    def cards(self) -> int:
        """Cards that a run takes, where it computes on cards."""
        return max(self.learner_processes, self.first_engine_card + self.engines * self.tensor_parallel)

    @property
    def first_engine_card(self) -> int:
        """The number of the first card that engines compute on."""
        return self.learner_processes if self.engines_apart else 0

    @model_validator(mode="after")
    def _require_card(self) -> Self:
        if self.device == "cpu" and self.offload_moments:
            raise ConfigurationError(
                "must have offload_moments: false on the device cpu, the host itself; found true",
                "TW-conflicting-options",
            )
        if self.device == "cpu" and self.engines_apart:
            raise ConfigurationError(
                "must have engines_apart: false on the device cpu, which has no cards; found true",
                "TW-conflicting-options",
            )
        if self.engine == "embedded" and self.tensor_parallel > 1:
            raise ConfigurationError(
                f"must have tensor_parallel: 1 with the engine embedded, since vLLM alone computes on several devices; "
                f"found {self.tensor_parallel}",
                "TW-conflicting-options",
            )
        if self.sleep_level and (self.device, self.engine) != ("cuda", "vllm"):
            raise ConfigurationError(
                f"must have sleep_level: 0 on the device {self.device} with the engine {self.engine}, since vLLM alone "
                f"sleeps, and on a card alone; found {self.sleep_level}",
                "TW-conflicting-options",
            )
        return self

    @field_validator("engine", mode="before")
    @classmethod
    def _refuse_former_name(cls, engine: object) -> object:
        if engine == "transformers":
            raise ConfigurationError(
                "must be vllm or embedded: transformers is now called embedded", "TW-unknown-engine"
            )
        return engine


class ModelSettings(ModelOptions):
    """What a model is loaded with. Default: the plain model in float32, with all parameters trained."""

    adapter: Adapter | None = None
    """With an adapter only the adapter is trained; None trains every parameter."""


PLAIN = ModelSettings()


class LearnerParameters(Section):
    """The settings that a learner is loaded with. All that it computes depends on them."""

    compute: Compute
    adapter: Adapter | None = None
    with_critic: bool = False
    """Whether the critic is a value head on the policy's trunk."""

    @property
    def model(self) -> ModelSettings:
        """The settings that its model is loaded with."""
        return ModelSettings.taken_from(self.compute, adapter=self.adapter)
