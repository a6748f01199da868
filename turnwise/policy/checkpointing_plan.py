"""The memory of a micro-batch's passes on a card with gradient checkpointing: the largest of three moments.

All the time the inputs of the layers are kept, 4 h bytes of a token and layer, 2 h with an adapter in bfloat16, where
states are rounded. On top of them come, one after the other,

* at the end of the forward pass the weights of all linear layers as autocast has rounded them, which it keeps until the
  trunk is through, and one layer;
* the logits, and the gradient of the output layer;
* in the backward pass one layer at a time with its gradients, and the gradient of an output layer that is tied to the
  embedding, which waits for the embedding's.

`python -m benchmarks.allocations` compares this with a trace of the allocations. On the CPU the C library does not give
to the one all that it has from the other: there `turnwise.policy.memory_plan` counts them together.
"""

from __future__ import annotations

from turnwise.policy.memory_plan import ModelMemory


def activations(model: ModelMemory, tokens: int, logits: int) -> int:
    """What a micro-batch of so many tokens takes at the peak of its passes besides `logits`, in bytes.

    `logits` are those of `ModelMemory.logits`, or 0 for a critic, which has none. For any settings and devices; what is
    said above holds on a card with checkpointing.
    """
    if model.device != "cuda" or not model.settings.gradient_checkpointing:
        return model.activations(tokens)
    wide, adapted = model.dimensions, model.settings.adapter is not None
    rounded_layer = model.scoring(0)
    layer = model.scoring(tokens) - rounded_layer
    of_number = 2 if adapted and model.settings.precision == "bfloat16" else 4
    inputs = of_number * wide.hidden * wide.layers * tokens
    forward = wide.layers * rounded_layer + layer
    waits = logits and not adapted and not any(name.endswith("lm_head.weight") for name in wide.shapes)
    backward = 2 * layer + rounded_layer + (4 * wide.vocabulary * wide.hidden if waits else 0)
    return inputs + max(0, max(forward, backward) - logits)
