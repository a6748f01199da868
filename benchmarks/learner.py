"""How much of the machine's arithmetic an update of the learner uses, for policies of four sizes.

Per size: tokens trained per second, the share of tokens that an update does not compute since another sequence begins
with the same ones, and the FLOP/s of the update next to those of the same update with transformers' own forward pass
(`theirs`), of the bare matrix products of the same shapes, and of one large product, measured in turns in the same
process. Only real tokens count as work: 6 FLOP per weight and token (2 forward, 4 backward), the output layer at reply
tokens only, and attention's products under the causal mask. Padding, normalisation, the loss and the optimizer's step
count as none; what our forward pass leaves out, shared tokens among it, counts as done. On the CPU a second is one of
the processor, so that other work on the machine cancels.

    python -m benchmarks.learner                    1 M, alone and in groups that share a turn, 10 M, 50 M and
                                                    SmolLM2-135M's shape, in groups; float32, on the CPU
    python -m benchmarks.learner --precision bfloat16
                                                    the same in bfloat16, where the processor has it
    python -m benchmarks.learner --device cuda      Qwen3-0.6B's shape, random weights, bfloat16, 16k tokens at a time

In bfloat16 the learner keeps what it trains in float32, as it does everywhere. `--gradient-checkpointing` and
`--compiled` hold the model otherwise; what is computed twice counts once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

from turnwise.config.model_settings import ModelSettings
from turnwise.data.arrays import SequenceBatch, TokenSequence
from turnwise.policy import forward_pass, scored_policy
from turnwise.policy.learner.learner import Learner, forget_peak_memory, peak_memory_bytes
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.model import dtype_of
from turnwise.policy.packing import Packing
from turnwise.policy.reply_states import is_packable, leaves_padding_out, padded_reply_states
from turnwise.policy.scoring import lay_out
from turnwise.seeding import generator

ROUNDS = 3
END, PAD = 1, 2


@dataclass(frozen=True)
class Size:
    """A policy's shape, and how much it is trained on."""

    name: str
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_dimension: int
    feed_forward: int
    vocabulary: int
    trajectories: int
    lengths: tuple[int, int]
    """Of an observation or a reply, from and to, in tokens; a trajectory has two of each."""
    micro_batch_tokens: int
    group: int = 1
    """Trajectories that share their first observation and reply, as episodes of a group often do."""

    @property
    def layer_matrices(self) -> list[tuple[int, int]]:
        """Input and output width of one layer's linear maps."""
        queries, keys = self.heads * self.head_dimension, self.key_value_heads * self.head_dimension
        attention = [(self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)]
        return [*attention, *[(self.hidden, self.feed_forward)] * 2, (self.feed_forward, self.hidden)]


ON_CPU = (
    Size("1 M", 128, 4, 4, 2, 32, 384, 1024, 128, (20, 80), 2048),
    Size("1 M, groups", 128, 4, 4, 2, 32, 384, 1024, 128, (20, 80), 2048, group=8),
    Size("10 M", 320, 7, 10, 5, 32, 960, 4096, 48, (20, 80), 2048),
    Size("50 M", 640, 9, 10, 5, 64, 1920, 8192, 12, (20, 80), 2048),
    Size("135 M, groups", 576, 30, 9, 3, 64, 1536, 49152, 8, (20, 80), 2048, group=4),
)
ON_CUDA = (Size("Qwen3-0.6B", 1024, 28, 16, 8, 128, 3072, 151936, 64, (100, 400), 16384),)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    size: Size
    parameters: int
    tokens_per_second: float
    shared: float
    update: float
    """FLOP/s, as are the next three."""
    theirs: float
    same_shapes: float
    large: float
    peak_bytes: int


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learner", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sizes", type=int, default=len(ON_CPU), help="how many of the sizes, the smallest first")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), help="default: float32 on the CPU, bfloat16 on a card"
    )
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args(list(arguments))
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("the device cuda must be there; torch finds none")
    torch.set_num_threads(options.threads)
    sizes = ON_CPU if options.device == "cpu" else ON_CUDA
    model = ModelSettings(
        precision=options.precision or ("bfloat16" if options.device == "cuda" else "float32"),
        gradient_checkpointing=options.gradient_checkpointing,
        compiled=options.compiled,
    )
    sys.stdout.write(
        f"the learner's update on {options.device}, {options.threads} threads, best of {ROUNDS}; {model}\n" + _HEADING
    )
    for size in sizes[: options.sizes]:
        learner = create_learner(size, options.device, options.threads, model)
        sys.stdout.write(_line(measure(learner, size, options.device, model)))
        sys.stdout.flush()


def create_learner(size: Size, device: str, threads: int, model: ModelSettings) -> Learner:
    """A learner of a policy of this shape with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        create_model(size, Path(folder))
        return Learner(Path(folder), device=device, threads=threads, model=model)


def measure(learner: Learner, size: Size, device: str, model: ModelSettings) -> Row:
    """One size: updates and bare products, in turns."""
    dtype = dtype_of(model)
    sequences = sequences_of(size)
    batch, settings = batch_of(learner, sequences, size), settings_of(size)
    packed, unpadded = is_packable(learner.model), leaves_padding_out(learner.model)
    micro_batches = lay_out(
        SequenceBatch.of(sequences), size.micro_batch_tokens, PAD, torch.device("cpu"), packed=unpadded
    )
    tokens = sum(len(sequence.tokens) for sequence in sequences)
    computed_tokens = tokens
    if packed:
        computed_tokens = sum(len(Packing.of(micro_batch, dtype).inputs) for micro_batch in micro_batches)
    replies = round(sum(len(micro_batch.targets) for micro_batch in micro_batches) / len(micro_batches))
    shapes = [(size.micro_batch_tokens, *matrix, size.layers) for matrix in size.layer_matrices]
    shapes.append((replies, size.hidden, size.vocabulary, 1))
    side = 8192 if device == "cuda" else 1536
    forget_peak_memory(device)
    learner.update(batch, settings)
    peak_bytes = peak_memory_bytes(device)
    seconds, their_seconds, same_shapes, large = [], [], [], []
    for _ in range(ROUNDS):
        seconds.append(_seconds(lambda: learner.update(batch, settings), device))
        with (
            patch.object(forward_pass, "reply_states", padded_reply_states),
            patch.object(scored_policy, "leaves_padding_out", lambda model: False),
        ):
            their_seconds.append(_seconds(lambda: learner.update(batch, settings), device))
        same_shapes.append(_products(shapes, dtype, device))
        large.append(_products([(side, side, side, 1)], dtype, device))
    return Row(
        size=size,
        parameters=sum(parameter.numel() for parameter in learner.model.parameters()),
        tokens_per_second=tokens / min(seconds),
        shared=1.0 - computed_tokens / tokens,
        update=_floating_point_operations(size, sequences) / min(seconds),
        theirs=_floating_point_operations(size, sequences) / min(their_seconds),
        same_shapes=max(same_shapes),
        large=max(large),
        peak_bytes=peak_bytes,
    )


def _floating_point_operations(size: Size, sequences: Sequence[TokenSequence]) -> float:
    """Of one pass forward and backward over the sequences; see the head of this file."""
    tokens = sum(len(sequence.tokens) for sequence in sequences)
    replies = sum(sum(sequence.mask) for sequence in sequences)
    weights = size.layers * sum(wide * high for wide, high in size.layer_matrices)
    attention = (
        size.layers * size.heads * size.head_dimension * sum(len(sequence.tokens) ** 2 for sequence in sequences)
    )
    return 6.0 * (weights * tokens + size.hidden * size.vocabulary * replies + attention)


def _products(shapes: Sequence[tuple[int, int, int, int]], dtype: torch.dtype, device: str) -> float:
    """FLOP/s of matrix products (rows, in, out, how often), each with the two products of its backward pass."""
    seconds, operations = 0.0, 0.0
    for rows, wide, high, times in shapes:
        states = torch.randn(rows, wide, dtype=dtype, device=device)
        weight = torch.randn(high, wide, dtype=dtype, device=device)
        gradient = torch.randn(rows, high, dtype=dtype, device=device)

        def forward_and_backward(
            states: torch.Tensor = states, weight: torch.Tensor = weight, gradient: torch.Tensor = gradient
        ) -> None:
            torch.nn.functional.linear(states, weight)
            gradient @ weight
            gradient.T @ states

        forward_and_backward()
        seconds += times * min(_seconds(forward_and_backward, device) for _ in range(3))
        operations += times * 6.0 * rows * wide * high
    return operations / seconds


def _seconds(work: Callable[[], object], device: str) -> float:
    if device == "cpu":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def create_model(size: Size, folder: Path) -> None:
    """A policy of this shape with random weights. Qwen3's heads are wider than hidden / heads, hence no create_policy
    for those.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from turnwise.policy.architecture import create_policy

    if size.hidden == size.heads * size.head_dimension:
        create_policy(
            folder,
            vocabulary_size=size.vocabulary,
            context_length=2048,
            end_token=END,
            pad_token=PAD,
            seed=0,
            hidden=size.hidden,
            layers=size.layers,
            heads=size.heads,
            key_value_heads=size.key_value_heads,
            feed_forward=size.feed_forward,
        )
        return
    configuration = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head_dimension,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=END,
        pad_token_id=PAD,
        bos_token_id=None,
        dtype="float32",
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(configuration).save_pretrained(folder)


def sequences_of(size: Size) -> list[TokenSequence]:
    """Trajectories of two turns; observations and replies differ in length as they do in practice."""
    draw = generator(0, "learner-benchmark")
    sequences = []

    def turn(number: int) -> tuple[list[int], list[int]]:
        """The tokens of an observation and a reply, and the turn of each."""
        observed, replied = (int(draw.integers(*size.lengths)) for _ in range(2))
        tokens = draw.integers(3, size.vocabulary, observed + replied).tolist()
        return tokens, [-1] * observed + [number] * replied

    for _ in range(size.trajectories // size.group):
        first = turn(0)
        for _ in range(size.group):
            tokens, turns = (before + after for before, after in zip(first, turn(1), strict=True))
            sequences.append(TokenSequence(tuple(tokens), tuple(turns), (0.0,) * len(tokens)))
    return sequences


def batch_of(learner: Learner, sequences: Sequence[TokenSequence], size: Size) -> UpdateBatch:
    """Every trajectory with an advantage, and the learner's own log-probabilities as the behaviour policy's."""
    rows = learner.log_probabilities(sequences, 1.0, size.micro_batch_tokens)
    rescored = [
        TokenSequence(sequence.tokens, sequence.turn_of_token, tuple(row))
        for sequence, row in zip(sequences, rows, strict=True)
    ]
    return UpdateBatch.from_turns(rescored, [((-1.0) ** index, 0.5) for index in range(len(rescored))])


def settings_of(size: Size) -> UpdateSettings:
    return UpdateSettings(
        learning_rate=1e-6, temperature=1.0, micro_batch_tokens=size.micro_batch_tokens, maximum_mismatch=1e9
    )


_HEADING = (
    f"{'policy':>11} {'parameters':>11} {'tokens/s':>9} {'shared':>7} | {'update':>8} {'theirs':>8} "
    f"{'same shapes':>11} {'large':>8} | {'of theirs':>9} {'of same':>7} {'of large':>8} | {'peak':>8}\n"
    f"{'':>41} | {'TFLOP/s':>8} {'TFLOP/s':>8} {'TFLOP/s':>11} {'TFLOP/s':>8} | {'':>26} | {'GiB':>8}\n"
)


def _line(row: Row) -> str:
    return (
        f"{row.size.name:>11} {row.parameters:>11,} {row.tokens_per_second:>9,.0f} {row.shared:>7.1%} | "
        f"{row.update / 1e12:>8.3f} {row.theirs / 1e12:>8.3f} {row.same_shapes / 1e12:>11.3f} "
        f"{row.large / 1e12:>8.3f} | {row.update / row.theirs:>9.2f} {row.update / row.same_shapes:>7.0%} "
        f"{row.update / row.large:>8.0%} | "
        f"{row.peak_bytes / 2**30:>8.1f}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
