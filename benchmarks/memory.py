"""The memory plan of a process against the peak that is measured, for policies of three sizes on the CPU.

A process for each size makes the policy, samples a batch with the engine, scores it under a reference policy, updates
on it, and does so again. The plan (`turnwise.training_runs.memory`) is made before; the peak is that of the process's
resident memory, less what it had after its imports: the libraries would hide an error of the plan where the policy is
small. A run imports more than this process (Prefect and MLflow at work, the world), which the plan's libraries allow
for.

    python -m benchmarks.memory                     the embedded engine
    python -m benchmarks.memory --engine vllm
    python -m benchmarks.memory -s compute.gradient_checkpointing=true      with other settings of an experiment
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.experiment import Experiment, load

if TYPE_CHECKING:
    from turnwise.data.arrays import TokenSequence
    from turnwise.policy.engines.contract import Engine
    from turnwise.policy.learner.learner import Learner

ROOT = Path(__file__).parents[1]
SIZES: dict[str, dict[str, int]] = {
    "20 M": {"hidden": 384, "layers": 8, "heads": 6, "feed_forward": 1536},
    "50 M": {"hidden": 512, "layers": 12, "heads": 8, "feed_forward": 2048},
    "80 M": {"hidden": 640, "layers": 12, "heads": 10, "feed_forward": 2560},
}
EPISODES, CONTEXT_TOKENS, REPLY_TOKENS = 16, 320, 128
END, PAD = 1, 2
SETTINGS: dict[str, Any] = {
    "policy.model": "scratch",
    "policy.vocabulary": 4096,
    "warm_start.enabled": False,
    "agent.context_tokens": CONTEXT_TOKENS,
    "agent.maximum_reply_tokens": REPLY_TOKENS,
    "rollout.prompts": EPISODES // 2,
    "rollout.group_size": 2,
    "data.validation_tasks": EPISODES,
    "data.test_tasks": EPISODES,
    "evaluation.samples": 1,
    "ablation.variants": ["grpo-or"],
}


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=("embedded", "vllm"), default="embedded")
    parser.add_argument("--sizes", type=int, default=3, help="how many of the sizes, the smallest first")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--child", metavar="SIZE", help=argparse.SUPPRESS)
    options = parser.parse_args(list(arguments))
    if options.child:
        json.dump(measure(experiment_of(options.child, options.engine, options.set)), sys.stdout)
        return
    sys.stdout.write(
        f"memory of one process on the CPU, in GiB; engine {options.engine} {' '.join(options.set)}\n"
        f"{'':>8} {'libraries':>17} {'all else':>26}\n"
        f"{'policy':>8} {'plan':>8} {'imported':>8} {'plan':>8} {'measured':>8} {'ratio':>8}  planned peak in\n"
    )
    for name in list(SIZES)[: options.sizes]:
        command = [sys.executable, "-m", "benchmarks.memory", "--child", name, "--engine", options.engine]
        command += [part for each in options.set for part in ("-s", each)]
        finished = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        sys.stdout.write(line(name, experiment_of(name, options.engine, options.set), json.loads(finished.stdout)))
        sys.stdout.flush()


def experiment_of(name: str, engine: str, settings: Sequence[str]) -> Experiment:
    """The experiment that is planned and measured."""
    shape = {f"policy.{key}": value for key, value in SIZES[name].items()}
    base_settings = {**SETTINGS, **shape, "compute.engine": engine}
    return load(
        ROOT / "params.yaml", [], [*(f"{key}={json.dumps(value)}" for key, value in base_settings.items()), *settings]
    )


def line(name: str, experiment: Experiment, memory: dict[str, int]) -> str:
    """A line of the table."""
    from turnwise.policy.dimensions import dimensions_of
    from turnwise.policy.memory_plan import GIB
    from turnwise.training_runs.memory import largest_plan

    dimensions = dimensions_of(experiment.policy)
    assert dimensions is not None, "a policy from scratch has its dimensions in the configuration"
    peak = largest_plan(experiment, dimensions).peak
    libraries, rest = peak.parts["libraries"], peak.bytes - peak.parts["libraries"]
    sizes = (libraries, memory["libraries"], rest, memory["peak"] - memory["libraries"])
    columns = " ".join(f"{size / GIB:>8.2f}" for size in sizes)
    return f"{name:>8} {columns} {sizes[2] / sizes[3]:>8.2f}  {peak.name}\n"


def measure(experiment: Experiment) -> dict[str, int]:
    """The resident memory of this process in bytes: after its imports, and at its peak."""
    import flows.ablation  # noqa: F401  what a run imports
    from turnwise.config.model_settings import ModelSettings
    from turnwise.policy.engines.contract import Sampling
    from turnwise.policy.engines.resident import make_engine
    from turnwise.policy.learner.learner import Learner, peak_memory_bytes

    if experiment.compute.engine == "vllm":
        from turnwise.policy.engines.vllm_start import import_vllm

        import_vllm()

    optimization, compute = experiment.optimization, experiment.compute
    with tempfile.TemporaryDirectory() as name:
        folder, next_folder = Path(name) / "policy", Path(name) / "next"
        libraries, threads = peak_memory_bytes("cpu"), compute.learner_threads
        _create(experiment, folder)
        engine = make_engine(compute.engine, threads=1, context_length=CONTEXT_TOKENS, maximum_episodes=256)
        whole = ModelSettings.taken_from(compute)
        learner = Learner(folder, threads=threads, model=whole.changed(adapter=optimization.adapter))
        reference = Learner(folder, threads=threads, model=whole)
        engine.load(folder, "0")
        for iteration in (1, 2):
            engine.begin(iteration, Sampling(1.0, REPLY_TOKENS, (END,)))
            sequences = _sample(engine, experiment.policy.vocabulary)
            reference.log_probabilities(sequences, 1.0, optimization.micro_batch_tokens)
            _update(learner, sequences, experiment)
            next_folder.mkdir(exist_ok=True)
            learner.save(next_folder)
            engine.load(next_folder, str(iteration), learner.model)
        return {"libraries": libraries, "peak": peak_memory_bytes("cpu")}


def _create(experiment: Experiment, folder: Path) -> None:
    from turnwise.policy.architecture import create_policy

    policy = experiment.policy
    create_policy(
        folder,
        vocabulary_size=policy.vocabulary,
        context_length=CONTEXT_TOKENS,
        end_token=END,
        pad_token=PAD,
        seed=0,
        hidden=policy.hidden,
        layers=policy.layers,
        heads=policy.heads,
        key_value_heads=policy.heads,
        feed_forward=policy.feed_forward,
        initial_deviation=policy.initial_deviation,
    )


def _sample(engine: Engine, vocabulary: int) -> list[TokenSequence]:
    """One reply to each of some random contexts, which leave no room for more than the reply."""
    from turnwise.data.arrays import TokenSequence
    from turnwise.seeding import generator

    length = CONTEXT_TOKENS - REPLY_TOKENS
    contexts = generator(0, "memory-benchmark").integers(3, vocabulary, (EPISODES, length)).tolist()
    for episode, context in enumerate(contexts):
        engine.submit(episode, context)
    sequences = []
    while engine.in_flight:
        for reply in engine.step():
            sequences.append(
                TokenSequence(
                    (*contexts[reply.episode], *reply.tokens),
                    (-1,) * length + (0,) * len(reply.tokens),
                    (0.0,) * length + reply.log_probabilities,
                )
            )
    return sequences


def _update(learner: Learner, sequences: Sequence[TokenSequence], experiment: Experiment) -> None:
    """An update in which every sequence has a gradient."""
    from turnwise.policy.learner.update import UpdateBatch, UpdateSettings

    optimization = experiment.optimization
    batch = UpdateBatch.from_turns(sequences, [((-1.0) ** index,) for index in range(len(sequences))])
    settings = UpdateSettings(
        learning_rate=1e-6,
        temperature=1.0,
        mini_batches=2,
        micro_batch_tokens=optimization.micro_batch_tokens,
        entropy_coefficient=optimization.entropy_coefficient,
    )
    learner.update(batch, settings)


if __name__ == "__main__":
    main(sys.argv[1:])
