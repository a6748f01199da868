"""The solved episodes of a recorded run as conversations: a dataset folder in Hugging Face's layout, with its card.

`datasets.load_dataset(FOLDER)` has a split for each occasion of playing; `data.conversations` imitates a
file of it, and `turnwise what-if FILE` reads one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnwise.agent.formats import make_format
from turnwise.agent.playing import instruction_of
from turnwise.config.agent import Agent
from turnwise.data.trajectory import Trajectory
from turnwise.errors import ConfigurationError
from turnwise.exports.policy import CARD, atomic_folder, shown_examples
from turnwise.records.episodes import in_training, on_task_sets, weighted_return
from turnwise.reporting.data.episodes import OCCASIONS, Occasion, ShownEpisode, Wanted
from turnwise.reporting.markdown import render
from turnwise.tracking.finding import RecordedRun

SPLITS = {"training": "train", "validation": "validation", "test": "test"}
"""Each occasion's split, by the name that the hub gives it."""


def write_conversations(run: RecordedRun, folder: Path) -> dict[Occasion, int]:
    """Write the solved episodes of a run into `folder`, all or nothing: a file of JSON lines for each occasion.

    Returns how many there are of each occasion. Raises ConfigurationError where the run has solved none.
    """
    agent = Agent.model_validate_json(json.dumps(run.artifacts.experiment["agent"]))
    world = run.artifacts.world
    name = run.artifacts.experiment["world"]["name"]
    functions = make_format(agent.format, world).functions
    answer = "user" if functions is None else "tool"
    opening = list(_opening(run, instruction_of(agent, world), answer))
    counts: dict[Occasion, int] = {}
    with atomic_folder(folder) as partial:
        (partial / "data").mkdir()
        for occasion in OCCASIONS:
            if rows := [_row(episode, opening, answer) for episode in _solved(run, occasion)]:
                lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
                (partial / "data" / f"{SPLITS[occasion]}.jsonl").write_text(lines, encoding="utf-8")
                counts[occasion] = len(rows)
        if not counts:
            raise ConfigurationError(
                f"a run must have solved an episode to have conversations; {run.name} solved none", "TW-nothing-solved"
            )
        card = render(
            "turnwise.reporting",
            "dataset-card.md.jinja",
            metadata=_metadata(run, name, counts),
            run=run,
            world=name,
            agent=agent,
            functions=None if functions is None else json.dumps(functions.signatures, indent=1),
            counts=[[SPLITS[occasion], str(count)] for occasion, count in counts.items()],
        )
        (partial / CARD).write_text(card, encoding="utf-8")
    return counts


def _solved(run: RecordedRun, occasion: Occasion) -> Iterator[ShownEpisode]:
    wanted = Wanted(occasion=occasion, success=True)
    yield from in_training(run, wanted, range(1, len(run.artifacts.iterations) + 1))
    yield from on_task_sets(run, wanted)


def _row(episode: ShownEpisode, opening: Sequence[dict[str, str]], answer: str) -> dict[str, Any]:
    return {
        "messages": [*opening, *_messages(episode.sample.trajectory, answer)],
        "reward": weighted_return(episode.sample),
        "task": episode.task,
        "iteration": episode.iteration,
        "mode": episode.mode,
    }


def _opening(run: RecordedRun, instruction: str | None, answer: str) -> Iterator[dict[str, str]]:
    """What the policy is shown before its own task: the instruction, and worked examples."""
    if instruction is not None:
        yield {"role": "system", "content": instruction}
    for turn in (turn for example in shown_examples(run.artifacts.experiment) for turn in example.turns):
        yield {"role": answer if turn.answers_call else "user", "content": turn.observation}
        yield {"role": "assistant", "content": turn.reply}


def _messages(trajectory: Trajectory, answer: str) -> Iterator[dict[str, str]]:
    """All that was said, in order. What a world answers to actions is a message of the role `answer`."""
    for before, turn in pairwise((None, *trajectory.turns)):
        assert turn is not None, "only the first of all is"
        text = "\n".join(part for part in (turn.observation, turn.asked) if part)
        yield {"role": "user" if before is None or not before.actions else answer, "content": text}
        yield {"role": "assistant", "content": turn.reply}


def _metadata(run: RecordedRun, world: str, counts: dict[Occasion, int]) -> str:
    """The card's metadata as Hugging Face's hub reads it: the file of each split, what they are, their number."""
    from huggingface_hub import DatasetCardData

    files = [{"split": SPLITS[each], "path": f"data/{SPLITS[each]}.jsonl"} for each in counts]
    data = DatasetCardData(
        pretty_name=f"{run.name} in {world}",
        task_categories=["text-generation"],
        tags=["reinforcement-learning", "multi-turn", "turnwise", world],
        config_names=["default"],
        ignore_metadata_errors=False,
        configs=[{"config_name": "default", "data_files": files}],
    )
    return data.to_yaml().rstrip()
