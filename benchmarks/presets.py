"""What the papers' presets need on a card, in memory and in hours: the tables of docs/gpu.md. Nothing is run.

    python -m benchmarks.presets

Memory is the plan of `turnwise ablation --dry-run`. Hours are those of one variant with one seed, from above, on an
assumed card, an H100: with P weights, E episodes of at most C tokens, R of them replies', e epochs,

    sampling    R / n steps of 5 ms, and the reading of P weights and of the keys and values of n half contexts, at half
                of the memory's 3.35e12 bytes/s; n episodes at once
    training    (6 e + 2 s) P E C operations at 40 % of 9.89e14 a second: s passes without a gradient, of the reference
                policy and of a critic; 8 e with checkpointing; and as many for a critic with a trunk of its own

Evaluation, worlds and files are not in them. `python -m benchmarks.gpu` measures a card's own speeds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.runtime.disk import planned_run
from tests.policy.published_shapes import write_published
from turnwise.experiment import Experiment, load
from turnwise.policy.dimensions import Dimensions, dimensions_in
from turnwise.policy.engines.cache_size import bytes_per_token
from turnwise.policy.memory_plan import GIB, NUMBER_BYTES
from turnwise.policy.sizes import count
from turnwise.training_runs.memory import memory_plan, remedies

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ROOT / "experiments" / "paper"
STEP_SECONDS, BYTES_A_SECOND, OPERATIONS_A_SECOND = 0.005, 0.5 * 3.35e12, 0.4 * 9.89e14
AT_ONCE = 256


@dataclass(frozen=True)
class Preset:
    """Files of experiments/paper, laid over each other, and the model that they name."""

    files: tuple[str, ...]
    size: str


PRESETS = (
    Preset(("ragen.yaml",), "0.5B"),
    Preset(("ragen.yaml", "ragen/3b.yaml"), "3B"),
    Preset(("mt_grpo.yaml",), "7B"),
    Preset(("mt_ppo.yaml",), "7B"),
    Preset(("agentgym_rl.yaml",), "7B"),
    Preset(("agentgym_rl.yaml", "agentgym_rl/3b.yaml"), "3B"),
)


def main() -> None:
    sys.stdout.write(
        "| preset | model | least, most GiB | with an adapter | with all offered | hours to sample | to train |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for preset in PRESETS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = write_published(Path(temporary), preset.size)
            overlays = [PAPERS / name for name in preset.files]
            experiment = load(ROOT / "params.yaml", overlays, {"policy.model": str(folder)}, to_plan=True)
            sys.stdout.write(row(preset, experiment, dimensions_in(folder)))
            sys.stdout.flush()


def row(preset: Preset, experiment: Experiment, dimensions: Dimensions) -> str:
    """A row of the table."""
    variants = {name: experiment.variant(name) for name in experiment.ablation.variants}
    peaks = [memory_plan(own, dimensions, name).peak.bytes for name, own in variants.items()]
    offered = {remedy.options: remedy.peak for remedy in remedies(experiment, dimensions)}
    adapter = next((peak for options, peak in offered.items() if "optimization.adapter" in options), None)
    sampling = [sampling_hours(own, dimensions, name) for name, own in variants.items()]
    training = [training_hours(own, dimensions, name) for name, own in variants.items()]
    columns = (
        ", ".join(f"`{name}`" for name in preset.files),
        f"Qwen2.5-{preset.size}",
        between(peaks, GIB),
        "" if adapter is None else f"{adapter / GIB:.1f}",
        f"{min(offered.values()) / GIB:.1f}",
        between(sampling),
        between(training),
    )
    return f"| {' | '.join(columns)} |\n"


def between(numbers: Sequence[float], unit: float = 1.0) -> str:
    """The least and the most."""
    least, most = (f"{number / unit:.1f}" for number in (min(numbers), max(numbers)))
    return least if least == most else f"{least}, {most}"


def sampling_hours(own: Experiment, dimensions: Dimensions, variant: str) -> float:
    """See the head of this file."""
    number_bytes = NUMBER_BYTES[own.compute.precision]
    at_once = min(AT_ONCE, own.rollout.prompts * own.rollout.group_size)
    per_token = bytes_per_token(dimensions.layers, dimensions.key_value_heads, dimensions.head_dimension, number_bytes)
    cached = at_once * own.agent.context_tokens / 2 * per_token
    step = STEP_SECONDS + (number_bytes * count(dimensions.shapes) + cached) / BYTES_A_SECOND
    return planned_run(own, variant).reply_tokens / at_once * step / 3600


def training_hours(own: Experiment, dimensions: Dimensions, variant: str) -> float:
    """See the head of this file."""
    optimization, own_critic = own.optimization, own.has_critic and not own.critic_on_trunk
    tokens = planned_run(own, variant).episodes * own.agent.context_tokens
    gradient_passes = 8 if own.compute.gradient_checkpointing else 6
    passes = gradient_passes * optimization.epochs + 2 * (optimization.reference is not None) + 2 * own.has_critic
    if own_critic:
        passes += gradient_passes * own.critic.epochs
    return passes * count(dimensions.shapes) * tokens / OPERATIONS_A_SECOND / 3600


if __name__ == "__main__":
    main()
