"""The memory plan of an update on a card against a trace of its allocations, at sizes that no test machine holds.

The learner loads a model of Qwen2.5's shape and updates it on micro-batches that are full, with all of its own code.
Its weights, activations and moments have shapes and no data (torch's fake tensors), so that 7B takes a minute and a
gigabyte; tokens and positions have data. Each storage counts from the operation that makes it until Python and autograd
have let go of it.

    python -m benchmarks.allocations                        0.5B, 3B and 7B
    python -m benchmarks.allocations --sizes 0.5B --largest 12       and what is there at the peak

What is computed is what a card computes: sequences side by side, bfloat16, torch's attention for sequences of unequal
lengths. What a trace cannot see: the allocator's rounding and fragmentation, the workspaces of cuBLAS and of the
attention's backward pass, vLLM. The device is called cpu, since torch's build for CPUs has no backward pass for tensors
that are said to be on a card.

torch's own `MemTracker` is not used: it refuses a model that is called twice, and the peak is in the second
micro-batch, where the gradients of the first are there too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.policy.published_shapes import QWEN, write_published
from turnwise.config.model_settings import Adapter, ModelSettings
from turnwise.data.arrays import TokenSequence
from turnwise.policy.decoder import is_known_decoder
from turnwise.policy.dimensions import dimensions_in
from turnwise.policy.learner.learner import Learner
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.memory_plan import GIB, ModelMemory
from turnwise.policy.side_by_side import SIDE_BY_SIDE, Boundaries, in_one_call
from turnwise.training_runs.memory import activations

MICRO_BATCH_TOKENS, SEQUENCE_TOKENS, MICRO_BATCHES = 16384, 4096, 2
SETTINGS: dict[str, ModelSettings] = {
    "as in the presets": ModelSettings(precision="bfloat16"),
    "checkpointing": ModelSettings(precision="bfloat16", gradient_checkpointing=True),
    "checkpointing, 512 logits": ModelSettings(
        precision="bfloat16", gradient_checkpointing=True, logit_chunk_tokens=512
    ),
    "adapter": ModelSettings(precision="bfloat16", adapter=Adapter(rank=8, alpha=16)),
    "adapter, checkpointing": ModelSettings(
        precision="bfloat16", gradient_checkpointing=True, adapter=Adapter(rank=8, alpha=16)
    ),
}


class Allocations(TorchDispatchMode):
    """Counts the bytes of tensors without data, and computes what has data, tokens and positions, as ever.

    It stands above a `FakeTensorMode`. Where a number without data is read, it is 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.at_peak: Counter[str] = Counter()
        """Bytes by the operation that made them, with its type and shape."""
        self._live: Counter[str] = Counter()
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def forget_peak(self) -> None:
        """Begin the peak anew."""
        self.peak, self.at_peak = self.now, self._live.copy()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        without_data = [each for each in inputs if isinstance(each, FakeTensor)]
        if func is torch.ops.aten._local_scalar_dense.default and without_data:
            return {torch.bool: True}.get(args[0].dtype, 1.0 if args[0].dtype.is_floating_point else 1)
        if func.overloadpacket is torch.ops.aten.arange or (inputs and not without_data):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        outputs = func(*args, **kwargs)
        for each in tree_leaves(outputs):
            if isinstance(each, FakeTensor):
                self._count(each, func.name())
        return outputs

    def _count(self, tensor: torch.Tensor, operation: str) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return
        name = f"{operation.removeprefix('aten::')} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"

        def freed(_: object) -> None:
            self._live_changed(name, -size)
            del self._storages[key]

        self._storages[key] = weakref.ref(storage, freed)
        self._live_changed(name, size)

    def _live_changed(self, name: str, size: int) -> None:
        if size < 0 and self.now == self.peak:
            self.at_peak = self._live.copy()
        self.now += size
        self._live[name] += size
        self.peak = max(self.peak, self.now)


@dataclass(frozen=True)
class Row:
    """One line of the table, in bytes."""

    size: str
    settings: str
    state_planned: int
    """Weights and moments, between two updates."""
    state: int
    passes_planned: int
    """What an update takes besides: gradients, activations, logits."""
    passes: int
    largest: list[tuple[str, int]]
    """What is there at the peak."""


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocations", description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=QWEN, default=list(QWEN))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--largest", type=int, default=0, help="print so many kinds of tensors at the peak")
    options = parser.parse_args(list(arguments))
    sys.stdout.write(
        f"an update on a card, micro-batches of {MICRO_BATCH_TOKENS:,} tokens, half of them replies'; GiB\n"
        f"{'':>31} {'weights and moments':>20} {'besides, in an update':>22} {'peak':>24}\n"
        f"{'policy':>5} {'':>25} {'plan':>10} {'trace':>9} {'plan':>12} {'trace':>9} {'plan':>8} {'trace':>8} ratio\n"
    )
    for size in options.sizes:
        for name in options.settings:
            row = traced(size, name)
            sys.stdout.write(line(row))
            for what, number in row.largest[: options.largest]:
                sys.stdout.write(f"{number / GIB:>41.3f}  {what}\n")
            sys.stdout.flush()


def line(row: Row) -> str:
    """A line of the table."""
    planned, traced_peak = row.state_planned + row.passes_planned, row.state + row.passes
    state, passes = (row.state_planned, row.state), (row.passes_planned, row.passes)
    columns = [f"{each / GIB:.2f}" for each in (*state, *passes, planned, traced_peak)]
    widths = (10, 9, 12, 9, 8, 8)
    cells = " ".join(f"{each:>{width}}" for each, width in zip(columns, widths, strict=True))
    return f"{row.size:>5} {row.settings:>25} {cells} {planned / traced_peak:>5.2f}\n"


def traced(size: str, name: str) -> Row:
    """The plan of an update and the trace of one, the second, whose moments are there."""
    settings = SETTINGS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = write_published(Path(temporary), size)
        dimensions = dimensions_in(folder)
        assert dimensions.vocabulary > SEQUENCE_TOKENS
        with as_on_a_card() as allocations:
            learner = Learner(folder, threads=1, model=settings)
            learner.update(a_batch(1), UPDATE)  # it makes the moments
            state = allocations.now
            allocations.forget_peak()
            learner.update(a_batch(MICRO_BATCHES * MICRO_BATCH_TOKENS // SEQUENCE_TOKENS), UPDATE)
    plan = ModelMemory(dimensions, settings, "cuda")
    logits = plan.logits(MICRO_BATCH_TOKENS, entropy_gradient=UPDATE.entropy_coefficient > 0)
    return Row(
        size=size,
        settings=name,
        state_planned=plan.weights + plan.moments,
        state=state,
        passes_planned=plan.gradients + logits + activations(plan, MICRO_BATCH_TOKENS, logits),
        passes=allocations.peak - state,
        largest=allocations.at_peak.most_common(),
    )


UPDATE = UpdateSettings(
    learning_rate=1e-6,
    temperature=1.0,
    micro_batch_tokens=MICRO_BATCH_TOKENS,
    entropy_coefficient=0.001,
    maximum_mismatch=1e9,
)


def a_batch(count: int) -> UpdateBatch:
    """So many sequences, of which the second half is a reply. No two begin alike."""
    half = SEQUENCE_TOKENS // 2
    sequences = [
        TokenSequence((3 + number, *range(4, 3 + SEQUENCE_TOKENS)), (-1,) * half + (0,) * half, (0.0,) * 2 * half)
        for number in range(count)
    ]
    return UpdateBatch.from_turns(sequences, [((-1.0) ** number,) for number in range(count)])


@contextmanager
def as_on_a_card() -> Iterator[Allocations]:
    """Within the block a learner is loaded without data, and computes what a learner on a card computes."""
    library, scored = "turnwise.policy.model", "turnwise.policy.scored_policy"
    attention = AttentionInterface()[SIDE_BY_SIDE]
    with ExitStack() as block:
        block.enter_context(patch(f"{library}.AutoModelForCausalLM.from_pretrained", without_data))
        block.enter_context(patch(f"{library}.can_lie_side_by_side", lambda model, *_, **__: is_known_decoder(model)))
        block.enter_context(patch(f"{library}.require_device", lambda *_: None))
        block.enter_context(patch(f"{library}.aligned", lambda model: model))
        # Modules are where and what they are to be; those without data refuse to be moved.
        block.enter_context(patch.object(torch.nn.Module, "to", lambda module, *_, **__: module))
        block.enter_context(patch.object(PreTrainedModel, "to", lambda model, *_, **__: model))
        block.enter_context(patch(f"{scored}.require_plain_output_layer", lambda model: None))
        block.callback(AttentionInterface.register, SIDE_BY_SIDE, attention)
        AttentionInterface.register(SIDE_BY_SIDE, attend_by_the_kernel)
        block.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield block.enter_context(Allocations())


def without_data(policy: str, *, dtype: torch.dtype, attn_implementation: str, **_: Any) -> PreTrainedModel:
    """A drop-in for `AutoModelForCausalLM.from_pretrained`, for a folder that has no weights."""
    configuration = AutoConfig.from_pretrained(policy, trust_remote_code=False)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        configuration, dtype=dtype, attn_implementation=attn_implementation
    )
    return model


def attend_by_the_kernel(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    boundaries: Boundaries | None = None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What `turnwise.policy.side_by_side.attend` does on a card, in bfloat16."""
    assert boundaries is not None, "sequences lie side by side"
    query, key, value = (each.to(torch.bfloat16) for each in (query, key, value))
    return in_one_call(query, key, value, boundaries, scaling), None


if __name__ == "__main__":
    main(sys.argv[1:])
