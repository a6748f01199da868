"""What `benchmarks.gpu` measures: each part in a process of its own, a line of JSON for each figure.

python -m benchmarks.gpu_parts learner cuda vllm smollm2-135m
python -m benchmarks.gpu_parts together cuda vllm smollm2-135m
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copy2
from typing import TYPE_CHECKING, Any, TextIO

from turnwise.own_process import collect_rarely

if TYPE_CHECKING:
    from benchmarks.learner import Row
    from turnwise.policy.learner.learner import Learner

ROOT = Path(__file__).resolve().parents[1]
PEAKS = {"H100 PCIe": 756e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12}
"""FLOP/s in bfloat16 of dense products, by NVIDIA's data sheets; the first name that a card's name contains."""
GOAL = 0.4
EPISODES = {"cuda": 256, "cpu": 16}
CONTEXT_TOKENS, REPLY_TOKENS = {"cuda": 512, "cpu": 48}, {"cuda": 256, "cpu": 16}
END = 1
PRECISION = {"cuda": "bfloat16", "cpu": "float32"}
VARIANT = "grpo-or"
OVERLAYS = ("experiments/smollm2/search.yaml", "experiments/card.yaml")
OF_A_CPU = {
    "optimization.iterations": 1,
    "evaluation.every": 1,
    "data.validation_tasks": 4,
    "data.test_tasks": 4,
    "rollout.prompts": 2,
    "warm_start.maximum_steps": 4,
    "warm_start.check_every": 4,
}
"""So little of the default experiment that its end comes in a minute."""
KINDS = {
    "attention": ("flash", "fmha", "attention"),
    "matrix products": ("gemm", "nvjet", "cutlass", "cublas", "aten::mm", "aten::addmm", "aten::bmm"),
    "optimizer": ("adam", "multi_tensor"),
}
"""Parts of the names of kernels, and of torch's operations on a CPU, by kind of work; the first kind that fits."""


def main(arguments: Sequence[str]) -> None:
    """Measure the part that is named, on the device and with the engine that are named."""
    collect_rarely()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    name, *options = arguments
    {"learner": learner, "compiled": compiled, "together": together, "overlay": overlay}[name](
        Answers(answers), *options
    )
    answers.flush()
    os._exit(0)  # tearing vLLM down takes seconds


class Answers:
    """Where figures are written to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, name: str, figure: str) -> None:
        """Write a figure at once."""
        self._stream.write(json.dumps([name, figure]) + "\n")
        self._stream.flush()


def learner(answers: Answers, device: str, engine: str, model: str) -> None:
    """The learner alone, as `benchmarks.learner` measures it, and what an update's time is of."""
    trained, row = _measure_learner(device)
    peak = _peak_of_card() if device == "cuda" else None
    if peak is None:
        figure = f"{row.update / row.large:.0%} of what one large product reaches; the peak of this {device} is unknown"
    else:
        figure = (
            f"{row.update / peak:.0%} of {peak / 1e12:,.0f} TFLOP/s; goal {GOAL:.0%}. One large product reaches "
            f"{row.large / peak:.0%}, the shapes of this policy {row.same_shapes / peak:.0%}"
        )
    answers.tell("MFU", figure)
    answers.tell("trained", f"{row.tokens_per_second:,.0f} tokens a second")
    answers.tell("time of update", _shares_of_update(trained, device))


def compiled(answers: Answers, device: str, engine: str, model: str) -> None:
    """The same with layers that torch compiles, on a card; they are compiled before the time counts."""
    if device != "cuda":
        answers.tell("MFU, compiled", "for a card")
        return
    (_, row), peak = _measure_learner(device, compiled=True), _peak_of_card()
    share = "" if peak is None else f"{row.update / peak:.0%}, "
    answers.tell("MFU, compiled", f"{share}{row.tokens_per_second:,.0f} tokens a second")


def _measure_learner(device: str, **model: Any) -> tuple[Learner, Row]:
    """A learner, and the row of `benchmarks.learner` on it with all of the machine's threads."""
    import torch

    from benchmarks.learner import create_learner, measure
    from turnwise.config.model_settings import ModelSettings

    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    settings = ModelSettings.model_validate({"precision": PRECISION[device], **model})
    learner = create_learner(_size(device), device, threads, settings)
    return learner, measure(learner, _size(device), device, settings)


def _shares_of_update(trained: Learner, device: str) -> str:
    """What the device does in one update, by kind of work, as torch's profiler sees it."""
    from torch.autograd import DeviceType
    from torch.profiler import profile

    from benchmarks.learner import batch_of, sequences_of, settings_of

    size = _size(device)
    batch = batch_of(trained, sequences_of(size), size)
    trained.update(batch, settings_of(size))
    with profile() as profiled:
        seconds = _seconds(lambda: trained.update(batch, settings_of(size)), device)
    where = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    by_kind: dict[str, float] = {}
    for event in profiled.key_averages():
        if event.device_type == where:
            kinds = [kind for kind, parts in KINDS.items() if any(part in event.key for part in parts)]
            own = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
            kind = kinds[0] if kinds else "other work"
            by_kind[kind] = by_kind.get(kind, 0.0) + own / 1e6
    shares = [f"{kind} {each / seconds:.0%}" for kind, each in sorted(by_kind.items(), key=lambda entry: -entry[1])]
    return f"{', '.join(shares)} of {seconds:.2f} s; {max(0.0, 1.0 - sum(by_kind.values()) / seconds):.0%} without work"


def together(answers: Answers, device: str, engine_name: str, model: str) -> None:
    """Engine and learner in one process, as in a run: sample, update, hand the weights over, sample."""
    import flows.ablation  # noqa: F401  what a run imports
    from benchmarks.learner import create_model
    from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE
    from turnwise.config.model_settings import ModelSettings
    from turnwise.policy.dimensions import dimensions_in
    from turnwise.policy.engines.resident import make_engine
    from turnwise.policy.learner.learner import Learner

    experiment = _experiment(device, engine_name)
    imported = _Memory(device)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        create_model(_size(device), folder)
        plan = _plan(experiment, dimensions_in(folder))
        length = CONTEXT_TOKENS[device] + REPLY_TOKENS[device]
        engine = make_engine(
            experiment.compute.engine,
            device=device,
            context_length=length,
            maximum_episodes=MOST_EPISODES_AT_ONCE,
            precision=experiment.compute.precision,
        )
        seconds = _seconds(lambda: engine.load(folder, "first"), device)
        answers.tell("vLLM's start", f"{seconds:,.1f} s" + ("" if engine_name == "vllm" else f", of {engine_name}"))
        answers.tell("vLLM's share", _share(folder, experiment.compute, length, imported))
        _sample(engine, device)  # what is compiled and captured at the first batch is not its speed
        sequences, seconds = _sample(engine, device)
        tokens = sum(sum(sequence.mask) for sequence in sequences)
        answers.tell("sampled", f"{tokens / seconds:,.0f} tokens a second, {EPISODES[device]} episodes at once")
        trained = Learner(folder, device=device, threads=1, model=ModelSettings.taken_from(experiment.compute))
        imported.forget_peak()
        metrics = _update(trained, sequences, experiment)
        answers.tell(
            "mismatch", f"{metrics['mismatch']:.2g} nats in the mean, {metrics['mismatch_maximum']:.2g} at most"
        )
        answers.tell("peak, update", _peak_and_plan(imported.peak(), plan["update"]))
        imported.forget_peak()
        seconds = _seconds(lambda: engine.load(folder, "second", trained.model), device)
        answers.tell("handing over", f"{seconds:,.2f} s, in memory")
        _sample(engine, device)
        answers.tell("peak, sampling", _peak_and_plan(imported.peak(), plan["sampling"]))


def overlay(answers: Answers, device: str, engine: str, model: str) -> None:
    """A run as a user starts it: of the language model on a card, of the default experiment's policy on a CPU."""
    import turnwise as tw
    from flows.runtime.server import stop_server
    from turnwise.policy.dimensions import dimensions_of

    settings: dict[str, Any] = {
        "compute.engine": engine,
        "optimization.iterations": 6,
        "evaluation.every": 6,
        "ablation.variants": [VARIANT],
        "ablation.seeds": [1],
    }
    if device == "cuda":
        layers = [ROOT / overlay for overlay in OVERLAYS]
        settings["policy.model"] = str(Path(model).resolve()) if Path(model).exists() else model
    else:
        layers, settings = [], settings | OF_A_CPU
    with tempfile.TemporaryDirectory() as project:
        copy2(ROOT / "params.yaml", project)
        os.chdir(project)
        os.environ.pop("TURNWISE_HOME", None)
        experiment = tw.load(*layers, settings=settings)
        try:
            curve = tw.ablation(experiment, quiet=True).curves().set_index("iteration").loc[1:]
        finally:
            stop_server()
        own = experiment.variant(VARIANT)
        planned = max(_plan(own, dimensions_of(own.policy), libraries=device == "cpu").values())
        os.chdir(ROOT)
    answers.tell(
        "success", ", ".join(f"{each:.2f}" for each in curve["rollout/success"]) + ", sampled in each iteration"
    )
    seconds = curve[["seconds/sampling", "seconds/update"]].median()
    tokens = curve[["speed/sampled_tokens_per_second", "speed/trained_tokens_per_second"]].median()
    answers.tell(
        "iteration",
        f"sampling {seconds.iloc[0]:.1f} s, {tokens.iloc[0]:,.0f} tokens a second; update {seconds.iloc[1]:.1f} s, "
        f"{tokens.iloc[1]:,.0f} reply tokens a second, its files included; medians",
    )
    answers.tell("mismatch of run", f"{curve['update/mismatch_nats'].max():.2g} nats in the mean at most")
    answers.tell("peak of run", _peak_and_plan(int(curve["memory/update_peak_bytes"].max()), planned))


def _size(device: str) -> Any:
    from benchmarks.learner import ON_CUDA, Size

    return ON_CUDA[0] if device == "cuda" else Size("small", 64, 2, 2, 1, 32, 128, 512, 8, (20, 40), 512)


def _peak_of_card() -> float | None:
    import torch

    name = torch.cuda.get_device_name()
    return next((peak for known, peak in PEAKS.items() if known in name), None)


def _experiment(device: str, engine: str) -> Any:
    """What is planned: an experiment of one variant, without a reference policy."""
    from turnwise.experiment import load

    overrides = {
        "compute.device": device,
        "compute.engine": engine,
        "compute.precision": PRECISION[device],
        "policy.model": "scratch",
        "warm_start.enabled": False,
        "agent.context_tokens": CONTEXT_TOKENS[device] + REPLY_TOKENS[device],
        "agent.maximum_reply_tokens": REPLY_TOKENS[device],
        "rollout.prompts": EPISODES[device] // 8,
        "rollout.group_size": 8,
        "data.validation_tasks": EPISODES[device],
        "data.test_tasks": EPISODES[device],
        "evaluation.samples": 1,
        "optimization.micro_batch_tokens": _size(device).micro_batch_tokens,
        "optimization.reference": None,
        "monitors.probe_every": None,
        "ablation.variants": [VARIANT],
    }
    settings = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return load(ROOT / "params.yaml", [], settings).variant(VARIANT)


def _plan(experiment: Any, dimensions: Any, *, libraries: bool = False) -> dict[str, int]:
    """The bytes of each phase of the plan, with or without the libraries."""
    from turnwise.training_runs.memory import memory_plan

    phases = memory_plan(experiment, dimensions, VARIANT).phases
    return {phase.name: phase.bytes - (0 if libraries else phase.parts["libraries"]) for phase in phases}


def _peak_and_plan(peak: int, planned: int) -> str:
    from turnwise.policy.memory_plan import GIB

    return f"{peak / GIB:.2f} GiB, planned {planned / GIB:.2f}"


def _share(folder: Path, compute: Any, context_length: int, memory: _Memory) -> str:
    """What the engine was to take, and what it has taken."""
    from turnwise.agent.sampling import MOST_EPISODES_AT_ONCE
    from turnwise.policy.engines.vllm_model import engine_memory, share_of_card
    from turnwise.policy.memory_plan import GIB

    if (compute.device, compute.engine) != ("cuda", "vllm"):
        return f"{memory.used() / GIB:.2f} GiB are taken; there is no share of a {compute.device} to ask for"
    planned = engine_memory(folder, compute.device, compute.precision, context_length, MOST_EPISODES_AT_ONCE)
    needed = planned.weights + planned.cache + planned.graphs + planned.sampling
    return (
        f"{share_of_card(planned):.0%} of the card asked for, {needed / GIB:.2f} GiB; {memory.used() / GIB:.2f} taken"
    )


class _Memory:
    """The memory of the device that is taken since this was made."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._before = self._now()

    def used(self) -> int:
        """Bytes that are taken now."""
        return self._now() - self._before

    def peak(self) -> int:
        """The most bytes that were taken since `forget_peak`, by torch on a card, which vLLM's tensors are made by."""
        from benchmarks.half_billion import peak
        from turnwise.policy.learner.learner import peak_memory_bytes

        return peak_memory_bytes("cuda") if self._device == "cuda" else peak() - self._before

    def forget_peak(self) -> None:
        """Begin the peak anew."""
        from benchmarks.half_billion import forget_peak
        from turnwise.policy.learner.learner import forget_peak_memory

        if self._device == "cuda":
            forget_peak_memory("cuda")
        else:
            forget_peak()

    def _now(self) -> int:
        import psutil
        import torch

        if self._device == "cuda":
            free, total = torch.cuda.mem_get_info()
            return total - free
        return int(psutil.Process().memory_info().rss)


def _seconds(work: Callable[[], object], device: str) -> float:
    import torch

    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _sample(engine: Any, device: str) -> tuple[list[Any], float]:
    """One reply to each of some random contexts, as token sequences, and the seconds that they took."""
    from turnwise.data.arrays import TokenSequence
    from turnwise.policy.engines.contract import Sampling
    from turnwise.seeding import generator

    length, vocabulary = CONTEXT_TOKENS[device], _size(device).vocabulary
    contexts = generator(0, "gpu-benchmark").integers(3, vocabulary, (EPISODES[device], length)).tolist()
    replies: list[Any] = []

    def sample() -> None:
        engine.begin(1, Sampling(1.0, REPLY_TOKENS[device], (END,)))
        for episode, context in enumerate(contexts):
            engine.submit(episode, context)
        while engine.in_flight:
            replies.extend(engine.step())

    seconds = _seconds(sample, device)
    sequences = [
        TokenSequence(
            (*contexts[reply.episode], *reply.tokens),
            (-1,) * length + (0,) * len(reply.tokens),
            (0.0,) * length + reply.log_probabilities,
        )
        for reply in replies
    ]
    return sequences, seconds


def _update(learner: Any, sequences: Sequence[Any], experiment: Any) -> dict[str, float]:
    """Two updates in which every sequence has a gradient; the first makes the moments. What the first one says."""
    from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

    batch = UpdateBatch.from_turns(sequences, [((-1.0) ** index,) for index in range(len(sequences))])
    settings = UpdateSettings(
        learning_rate=1e-6,
        temperature=1.0,
        micro_batch_tokens=experiment.optimization.micro_batch_tokens,
        entropy_coefficient=experiment.optimization.entropy_coefficient,
        maximum_mismatch=1e9,
    )
    metrics: dict[str, float] = learner.update(batch, settings)
    learner.update(batch, settings)
    return metrics


if __name__ == "__main__":
    main(sys.argv[1:])
