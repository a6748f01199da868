"""The layouts of the files that stages write: a layout that changes has another number, which is in the cache key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from pydantic import TypeAdapter
from safetensors.torch import load_file
from stage_samples import trajectory, turn

from tasks.caching import all_dependencies
from tasks.update.first_steps import FIRST_STEPS, FirstSteps
from turnwise.config.schema import CriticSection
from turnwise.credit.selection import SELECTION, Selection, write_selection
from turnwise.credit_study.study import Study
from turnwise.data.arrays import Advantages, Ragged, TokenSequence
from turnwise.data.conversations import CONVERSATIONS, Conversation, ConversationExchange, write_conversations
from turnwise.data.scores import SCORES, Scores, write_scores
from turnwise.data.task_sets import TASK_SETS, write_task_set
from turnwise.data.trajectory import LostEpisode
from turnwise.data.trajectory_files import CREDIT, TRAJECTORIES, write_credit, write_trajectories
from turnwise.health.record import HEALTH, HealthRecord
from turnwise.policy.architecture import create_policy
from turnwise.policy.critic.value_learning import ValueBatch
from turnwise.policy.learner.update import UpdateBatch, UpdateSettings
from turnwise.policy.model_files import CRITIC, POLICY
from turnwise.results.report_data import ReportData
from turnwise.store.digests import digest_of
from turnwise.world import Task

TASK = Task("frozen_lake", "lake/1", "train", 1, tags={})


def _trajectories(folder: Path) -> None:
    write_trajectories(folder, [trajectory(0, 0, [turn({"goal": 1.0})])], [LostEpisode(TASK, 0, 1, "why")])


def _credit(folder: Path) -> None:
    one, tokens = Ragged.of([[1.0]]), Ragged.of([[1.0, 2.0]])
    write_credit(
        folder,
        Advantages(np.array([0]), one, tokens, tokens),
        group=(0,),
        turn_rewards=one,
        outcome=(0.0,),
        reply_lengths=Ragged.of([[2]], np.int64),
    )


def _scores(folder: Path) -> None:
    write_scores(folder, Scores(Ragged.of([[1.0]]), np.array([0.0])))


def _task_set(folder: Path) -> None:
    write_task_set(folder, "train", [TASK])


def _conversations(folder: Path) -> None:
    write_conversations(folder, [Conversation("be brief", (ConversationExchange("hello", "hi", False),))])


def _selection(folder: Path) -> None:
    write_selection(folder, Selection({3: 0.5}, (3,)))


SEQUENCES = [TokenSequence((3, 4, 5, 1), (-1, 0, 0, 0), (0.0, -1.0, -1.0, -1.0))]


def _initial_policy(folder: Path) -> None:
    shape = {"hidden": 8, "layers": 1, "heads": 1, "key_value_heads": 1, "feed_forward": 8, "initial_deviation": 0.1}
    ends = {"end_token": 1, "pad_token": 2}
    create_policy(folder, vocabulary_size=8, context_length=16, seed=1, tied=True, **ends, **shape)  # type: ignore[arg-type]


def _policy(folder: Path) -> None:
    from turnwise.policy.learner.learner import Learner

    _initial_policy(folder)
    learner = Learner(folder, threads=1)
    settings = UpdateSettings(learning_rate=0.1, temperature=1.0, micro_batch_tokens=64, maximum_mismatch=100.0)
    learner.update(UpdateBatch.from_turns(SEQUENCES, [[1.0]]), settings)
    learner.save(folder)


def _critic(folder: Path) -> None:
    from turnwise.policy.critic.critic import Critic

    settings = CriticSection(learning_rate=0.1, micro_batch_tokens=64)
    with TemporaryDirectory() as initial:
        _initial_policy(Path(initial))
        critic = Critic.with_own_trunk(Path(initial), settings, seed=1, threads=1)
    critic.update(ValueBatch.of(SEQUENCES, [[0.0] * 3], [[1.0] * 3]), settings, seed=1)
    critic.save(folder)


LAYOUTS: Mapping[str, tuple[Callable[[Path], None], str]] = {
    TRAJECTORIES: (_trajectories, "53d17f3e0d6fe6db7b161edf416a3895"),
    CREDIT: (_credit, "aac52ff9f4611bd932413699ad00c262"),
    SCORES: (_scores, "8d890db90eac306a7425a0457ae1d8bc"),
    TASK_SETS: (_task_set, "b11710156a193827e90a69a320dc7a06"),
    CONVERSATIONS: (_conversations, "21c0996c110b8f666bd3b5b8ac1adb6c"),
    SELECTION: (_selection, "02b335430485f4f1e17952bff0c96e21"),
    POLICY: (_policy, "84f7a5d6f0d5297d41cc15cfa9e88891"),
    CRITIC: (_critic, "78625d897142045faeb46a3fdfb70666"),
}
"""By layout with its number: what writes a sample, and the digest of the layout of the sample's files."""
MODELS: Mapping[str, tuple[type, str]] = {
    HEALTH: (HealthRecord, "ebcf217c442e8603cee7ce34138305d5"),
    FIRST_STEPS: (FirstSteps, "07a42fe7d55e8ce35f0da45c7ee58df2"),
    "report 2": (ReportData, "4f349fd520bfac390456ef7b8338ff6a"),
    "credit study 2": (Study, "dcb546ea48e3d1426f135a1fa41a955c"),
}
"""Likewise for a file that holds one model as JSON: the model, and the digest of its schema."""
WITHOUT_FILES_OF_OURS = {
    "probe 1": "metrics alone",
    "score vectors 1": "one array of safetensors",
    "tokenizer 1": "the files of transformers",
}
"""Layouts that are not pinned, each with what it is."""


def layout_of(folder: Path) -> dict[str, Any]:
    """By file, the columns and their types of a Parquet file, or the keys and types of a line of JSON."""
    return {path.name: _layout_of_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _layout_of_file(path: Path) -> Any:
    if path.suffix == ".parquet":
        return str(parquet.read_schema(path).remove_metadata())
    if path.suffix == ".safetensors":
        return {name: f"{tensor.dtype} {list(tensor.shape)}" for name, tensor in load_file(path).items()}
    text = path.read_text()
    return (
        _keys(json.loads(text)) if path.suffix == ".json" else [_keys(json.loads(line)) for line in text.splitlines()]
    )


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(each) for key, each in sorted(value.items())}
    return [_keys(each) for each in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_changed_layout_has_another_number(tmp_path: Path, layout: str) -> None:
    write, digest = LAYOUTS[layout]
    write(tmp_path)
    assert digest_of(layout_of(tmp_path)) == digest, (
        f"files of the layout {layout!r} look different: give the layout another number, so that results in the old "
        "one are not taken for it, and write the digest of the new one here"
    )


@pytest.mark.parametrize("layout", MODELS)
def test_a_changed_model_has_another_number(layout: str) -> None:
    model, digest = MODELS[layout]
    assert digest_of(_undescribed(TypeAdapter(model).json_schema(mode="serialization"))) == digest, (
        f"what {layout!r} holds has changed: give the layout another number, and write the digest of the new one here"
    )


def _undescribed(schema: Any) -> Any:
    """A schema without its descriptions: a sentence of a docstring changes no file."""
    if isinstance(schema, dict):
        return {
            key: _undescribed(each) for key, each in schema.items() if not (key == "description" and "type" in schema)
        }
    return [_undescribed(each) for each in schema] if isinstance(schema, list) else schema


def test_the_layout_of_every_stage_is_pinned_or_none_of_ours() -> None:
    written = {stage.writes for stage in all_dependencies().values() if stage.function.__module__.startswith("tasks.")}
    assert written == {*LAYOUTS, *MODELS, *WITHOUT_FILES_OF_OURS}
