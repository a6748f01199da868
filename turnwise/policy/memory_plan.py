"""The memory that a model and an engine take on a device, by arithmetic, before either is loaded.

Training n weights, of which t are trained (all, or an adapter's): 4 bytes for each trained weight, 4 for its gradient
and 8 for AdamW's moments, or 4 in bfloat16, 2 in 8 bits, and none on a card where the host holds them; a frozen weight
has the bytes of the precision. On top come, for the s tokens of a micro-batch:

* **activations**: what autograd keeps for the backward pass. With h the hidden width, q that of all queries, k that of
  all keys and f that of the feed-forward, a layer keeps per token, in bytes,

      our forward pass (CPU), float32      16 h + 12 q + 12 k + 16 f      with norms of queries and keys  + 4 q + 4 k
      our forward pass (CPU), bfloat16     12 h +  6 q +  4 k +  8 f                                      + 3 q + 3 k
      transformers', float32               24 h +  8 q +  8 k + 16 f                                      + 8 q + 8 k
      transformers', bfloat16              26 h +  4 q +  4 k +  8 f                                      + 6 q + 6 k
      with an adapter, float32             16 h +  8 q +  8 k + 16 f                                      + 4 q + 4 k
      with an adapter, bfloat16            18 h +  6 q +  4 k +  8 f                                      + 4 q + 4 k

  With gradient checkpointing a layer keeps its input, 4 h, and one layer at a time is computed again, which takes it
  twice with its gradients; on a card it is less (`turnwise.training_runs.memory`). Besides, a forward pass makes
  copies of weights that live as long: ours joins those of queries, keys and values, and bfloat16 rounds those of every
  linear layer.

* **logits**: c reply tokens at once, c being at most `compute.logit_chunk_tokens`: three tensors [c, vocabulary] in
  float32 (logits, log p and p), four where entropies have a gradient; and the gradient of the output layer, twice where
  there is more than one chunk.

* **fragmentation** on the CPU: what the C library has freed and neither uses again nor returns. Our plain forward pass
  makes tensors of few sizes in place, and has next to none in float32; of 135 million parameters in bfloat16 it was up
  to 0.5 times the activations: 0.5 here for large policies and in bfloat16. With checkpointing, and in transformers'
  forward pass (an adapter), it was 1.0 to 1.9 times the activations: 1.3 here; there a large policy's tensors are
  returned at once (`turnwise.policy.freed_memory`).

These are estimates from above: they assume that every micro-batch is full and that all its tokens may be scored.
Measured on the CPU by `python -m benchmarks.memory`; `tests/policy/test_memory_plan.py` compares activations with what
autograd saves. On a card the allocator's fragmentation is not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from turnwise.config.model_settings import EngineName, ModelSettings
from turnwise.policy.dimensions import Dimensions
from turnwise.policy.engines.cache_size import bytes_per_token, embedded_slots, rounded_up, vllm_cache_bytes
from turnwise.policy.freed_memory import LARGE_POLICY, keeps_freed_memory
from turnwise.policy.sizes import count, moment_bytes, trained

GIB = 2**30
NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LIBRARIES = {"cpu": {"vllm": 9 * GIB // 8, "embedded": 7 * GIB // 8}, "cuda": {"vllm": 1 * GIB, "embedded": 1 * GIB}}
"""What a process takes before any model is loaded: on the CPU its libraries, measured in runs of a tiny policy; on a
card the context of CUDA and the workspaces of cuBLAS, which is an assumption."""
FRAGMENTATION, FRAGMENTATION_OF_FEW_SIZES = 1.3, 0.5
"""As shares of the activations, measured; the second in our plain forward pass, of large policies and in bfloat16."""
GRAPH_BYTES_PER_LAYER = 2**20 * 4 // 10
"""Of one CUDA graph. An assumption: 35 graphs of Llama-3.2-1B's 16 layers took 0.21 GiB in vLLM's own log (its pull
request 11349); it has not been measured here."""
TOKENS_AT_ONCE = {"embedded": 2048, "vllm": 8192}
"""Most tokens whose activations an engine has in memory at once."""


@dataclass(frozen=True)
class ModelMemory:
    """What a model takes on a device, in bytes, with the settings that it is loaded with."""

    dimensions: Dimensions
    settings: ModelSettings
    device: str
    processes: int = 1
    """Those that train it together; all numbers but `gathered` are of the whole model."""

    @property
    def gathered(self) -> int:
        """What each of several processes gathers around a pass: the weights outside the layers and of two layers, one
        of them fetched ahead, and their gradients before these are summed.
        """
        sizes: dict[str, int] = {}
        for name, shape in self.dimensions.shapes.items():
            layer = name.partition(".layers.")[2].partition(".")[0]
            sizes[layer] = sizes.get(layer, 0) + math.prod(shape)
        outside = sizes.pop("", 0)
        return 2 * 4 * (outside + 2 * max(sizes.values(), default=0))

    @property
    def weights(self) -> int:
        """All weights, an adapter's included."""
        every, adapter = count(self.dimensions.shapes), self.settings.adapter
        if adapter is None:
            return 4 * every
        return NUMBER_BYTES[self.settings.precision] * every + 4 * self.trained

    @property
    def trained(self) -> int:
        """The number of trained weights."""
        return trained(self.dimensions.shapes, self.settings.adapter)

    @property
    def gradients(self) -> int:
        """Those of the trained weights."""
        return 4 * self.trained

    @property
    def moments(self) -> int:
        """AdamW's two moments of the trained weights; none on a card where the host holds them."""
        return 0 if self.settings.offload_moments else moment_bytes(self.trained, self.settings.moments)

    def activations(self, tokens: int) -> int:
        """What autograd keeps of a micro-batch of this many tokens, until the backward pass is over."""
        layer_bytes, layers = self._layer_bytes_per_token() * tokens, self.dimensions.layers
        if self.settings.gradient_checkpointing:
            return 4 * self.dimensions.hidden * layers * tokens + 2 * layer_bytes + self._copies() // layers
        return layers * layer_bytes + self._copies()

    def fragmentation(self, tokens: int) -> int:
        """What a micro-batch's passes leave freed but not returned, on the CPU."""
        parameters = count(self.dimensions.shapes)
        few_sizes = self._is_packed and not self.settings.gradient_checkpointing
        if self.device != "cpu" or not keeps_freed_memory(parameters, few_sizes=few_sizes):
            return 0
        if few_sizes and self.settings.precision == "float32" and parameters <= LARGE_POLICY:
            return 0
        return round((FRAGMENTATION_OF_FEW_SIZES if few_sizes else FRAGMENTATION) * self.activations(tokens))

    def scoring(self, tokens: int) -> int:
        """The activations of a micro-batch that has no backward pass: those of one layer at a time."""
        return self._layer_bytes_per_token() * tokens + self._copies() // self.dimensions.layers

    def logits(self, tokens: int, *, entropy_gradient: bool = False, training: bool = True) -> int:
        """The logits of a micro-batch's reply tokens, and with `training` the gradient of the output layer."""
        vocabulary, chunk = self.dimensions.vocabulary, self.settings.logit_chunk_tokens
        tensors = 4 if entropy_gradient else 3
        logits = tensors * 4 * min(tokens, chunk) * vocabulary
        output_layer = vocabulary * self.dimensions.hidden
        rounded = 2 * output_layer if self.settings.precision == "bfloat16" else 0
        if not training or self.settings.adapter is not None:
            return logits + rounded
        return logits + rounded + 4 * output_layer * (2 if tokens > chunk else 1)

    @property
    def _is_packed(self) -> bool:
        """Whether the forward pass is ours: `turnwise.policy.reply_states.is_packable`."""
        plain = self.settings.adapter is None and not self.settings.compiled
        return self.dimensions.known and self.device == "cpu" and self.processes == 1 and plain

    def _layer_bytes_per_token(self) -> int:
        """The table at the head of this file."""
        if self._is_packed:
            hidden, queries, keys, feed_forward, norms = _PACKED_LAYER_BYTES[self.settings.precision]
        else:
            hidden, queries, keys, feed_forward, norms = _TRANSFORMERS_LAYER_BYTES[
                self.settings.adapter is not None, self.settings.precision
            ]
        if self.dimensions.head_norms:
            queries, keys = queries + norms, keys + norms
        wide = self.dimensions
        return hidden * wide.hidden + queries * wide.queries + keys * wide.keys + feed_forward * wide.feed_forward

    def _copies(self) -> int:
        """The copies of weights that a forward pass makes and autograd keeps."""
        if self.settings.precision == "float32":
            joined = self.dimensions.hidden * (self.dimensions.queries + 2 * self.dimensions.keys)
            return 4 * self.dimensions.layers * joined if self._is_packed else 0
        return 2 * (self.trained if self.settings.adapter is not None else self._linear_weights())

    def _linear_weights(self) -> int:
        wide = self.dimensions
        attention = 2 * wide.hidden * (wide.queries + wide.keys)
        return wide.layers * (attention + 3 * wide.hidden * wide.feed_forward)


_PACKED_LAYER_BYTES = {"float32": (16, 12, 12, 16, 4), "bfloat16": (12, 6, 4, 8, 3)}
"""Bytes per token and layer of our forward pass, for each width and for head norms, by precision."""
_TRANSFORMERS_LAYER_BYTES = {
    (False, "float32"): (24, 8, 8, 16, 8),
    (False, "bfloat16"): (26, 4, 4, 8, 6),
    (True, "float32"): (16, 8, 8, 16, 4),
    (True, "bfloat16"): (18, 6, 4, 8, 4),
}
"""Bytes per token and layer of transformers' forward pass, for each width and for head norms, by whether there is an
adapter and by precision."""


def count_of_graphs(most_episodes: int) -> int:
    """The number of CUDA graphs that vLLM captures: for 1, 2 and 4 sequences, each multiple of 8 below 256, and from
    there on each multiple of 16, up to the most episodes at once.
    """
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most_episodes + 1, 16)]
    return sum(size <= most_episodes for size in sizes)


@dataclass(frozen=True)
class EngineMemory:
    """What an engine takes on a device, in bytes, for contexts of `context_length` tokens and so many episodes."""

    dimensions: Dimensions
    engine: EngineName
    device: str
    precision: str
    context_length: int
    most_episodes: int
    """The most that the engine is asked to sample at once."""
    episodes: int
    """The most that are played at once."""
    tensor_parallel: int = 1
    """Devices that share its weights, and its keys and values as far as there are heads of them."""

    @property
    def number_bytes(self) -> int:
        """Of a weight, a key or a value: the embedded engine computes in float32 on the CPU."""
        return 4 if (self.engine, self.device) == ("embedded", "cpu") else NUMBER_BYTES[self.precision]

    @property
    def weights(self) -> int:
        """The engine's own copy. It has one at least until the learner's weights are there to be used in place."""
        every = count(self.dimensions.shapes)
        if self.engine == "vllm" and self.device == "cpu" and not self._has_output_layer:
            every += self.dimensions.vocabulary * self.dimensions.hidden  # packed for its kernels
        return -(-self.number_bytes * every // self.tensor_parallel)

    @property
    def cache(self) -> int:
        """Keys and values."""
        wide = self.dimensions
        token_bytes = bytes_per_token(wide.layers, wide.key_value_heads, wide.head_dimension, self.number_bytes)
        if self.engine == "vllm":
            token_bytes_per_card = token_bytes // min(self.tensor_parallel, wide.key_value_heads)
            return vllm_cache_bytes(self.device, token_bytes_per_card, self.context_length, self.most_episodes)
        slots = embedded_slots(self.device, token_bytes, self.context_length, self.most_episodes)
        return token_bytes * rounded_up(min(slots, self.episodes)) * rounded_up(self.context_length)

    @property
    def sampling(self) -> int:
        """Activations of the tokens that it computes at once, and the probabilities that tokens are drawn from."""
        wide = self.dimensions
        tokens = min(TOKENS_AT_ONCE[self.engine], self.episodes * self.context_length)
        numbers_per_token = 4 * wide.hidden + 3 * wide.queries + 3 * wide.keys + 4 * wide.feed_forward
        return self.number_bytes * tokens * numbers_per_token + 4 * 4 * self.episodes * wide.vocabulary

    @property
    def graphs(self) -> int:
        """The CUDA graphs of vLLM's steps in which every sequence has one new token: none on the CPU."""
        if (self.engine, self.device) != ("vllm", "cuda"):
            return 0
        return GRAPH_BYTES_PER_LAYER * self.dimensions.layers * count_of_graphs(self.most_episodes)

    @property
    def handing_over(self) -> int:
        """What vLLM has besides while its weights are replaced, one matrix after the other: the embedding, the largest.

        The matrix lies there as it comes from a learner, in float32 on a card, and as vLLM is to have it, on the CPU
        packed for its kernels too while the old one is still there. The embedded engine takes weights in place.
        """
        if self.engine != "vllm":
            return 0
        numbers = self.dimensions.vocabulary * self.dimensions.hidden // self.tensor_parallel
        return numbers * (2 * self.number_bytes if self.device == "cpu" else 4 + self.number_bytes)

    @property
    def _has_output_layer(self) -> bool:
        return any(name.endswith("lm_head.weight") for name in self.dimensions.shapes)
