"""What worked examples are worth to a model that nobody has taught: greedy success of SmolLM2-135M-Instruct.

    python -m benchmarks.worked_examples [EXAMPLES ...]

Without a warm start, replies of one line, 16 validation tasks a world, one thread. docs/science/smollm2.md has what it
printed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from flows.prepare import play_parameters
from turnwise.agent.playing import the_world
from turnwise.agent.sampling import PolicyWeights, independent, play_episodes
from turnwise.experiment import Experiment, load
from turnwise.policy.gguf_models import convert
from turnwise.policy.gguf_sources import gguf_here, known_gguf
from turnwise.statistics.tasks import wilson

ROOT = Path(__file__).parents[1]
MODEL = "smollm2-135m"
TASKS = 16
EXAMPLES = (0, 2)
WORLDS = {
    "search": {"hops": [1], "turns": 4, "passages": 2, "longest_name": 12, "needless_share": 0.0},
    "frozen_lake": {"size": 3, "frozen": 0.8, "success_rate": 1.0, "turns": 6, "actions_per_turn": 1, "actions": 6},
    "bandit": {},
}


def main() -> None:
    numbers = [int(each) for each in sys.argv[1:]] or EXAMPLES
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder)
        source = known_gguf(MODEL)
        with gguf_here(source) as file:
            convert(file, policy, source.content)
        for world in WORLDS:
            for examples in numbers:
                summary = _play(_experiment(world, examples), policy)
                sys.stdout.write(f"{world:<12} {examples} examples: {summary}\n")
                sys.stdout.flush()


def _experiment(world: str, examples: int) -> Experiment:
    settings = {
        "policy.model": MODEL,
        "world.name": world,
        "world.parameters": WORLDS[world],
        "agent.format": "line",
        "agent.instruction": True,
        "agent.examples": examples,
        "agent.maximum_reply_tokens": 24,
        "agent.context_tokens": 1024,
        "rewards": {"format": {"level": "outcome", "weight": 1.0}},
        "warm_start.enabled": False,
        "compute.engine": "embedded",
        "data.train_tasks": 64,
        "data.validation_tasks": TASKS,
        "data.test_tasks": 1,
        "data.demonstrations": 1,
    }
    return load(ROOT / "params.yaml", [], settings)


def _play(experiment: Experiment, policy: Path) -> str:
    rollout = play_episodes(
        play_parameters(experiment),
        experiment.compute,
        independent(the_world(experiment.world).tasks("validation", TASKS), 1, 0),
        policy=PolicyWeights(policy, "untaught"),
        tokenizer=policy,
        temperature=0.0,
        seed=0,
        what="greedy",
    )
    solved = sum(each.success for each in rollout.trajectories)
    turns = [turn for each in rollout.trajectories for turn in each.turns]
    interval = wilson(solved, TASKS)
    readable = sum(turn.invalid is None for turn in turns) / len(turns)
    tokens = sum(len(turn.reply_tokens) for turn in turns) / len(turns)
    return (
        f"success {solved / TASKS:.2f} ({interval.low:.2f} to {interval.high:.2f}), readable replies {readable:.2f}, "
        f"{tokens:.1f} tokens a reply"
    )


if __name__ == "__main__":
    main()
