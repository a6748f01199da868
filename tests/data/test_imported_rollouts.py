"""Rollouts of other systems, in rows as their code writes them: what is read, and where a wrong row is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from turnwise.data.imported_rollouts import EXACT, WORDS, Imported, read_rollouts
from turnwise.data.trajectory import Ending
from turnwise.errors import ConfigurationError


def written(folder: Path, rows: list[Any], name: str = "rows.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def shapes(found: Imported) -> list[tuple[int, list[int], list[bool]]]:
    """By trajectory: its group, the lengths of its replies, and which of them open a segment."""
    return [
        (each.group, [len(turn.reply_tokens) for turn in each.turns], [turn.opens_segment for turn in each.turns])
        for each in found.trajectories
    ]


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


CONVERSATION = [
    said("user", "how many?"),
    said("assistant", "let me look", reward=0.25),
    said("tool", "there are 4"),
    said("assistant", "four", rewards={"terse": 1}),
]


def test_messages_become_turns_with_their_rewards_and_groups_are_those_that_are_named(tmp_path: Path) -> None:
    rows = [
        {"messages": CONVERSATION, "reward": 1.0, "group": "b"},
        {"messages": CONVERSATION[:2], "rewards": {"exact": 0}, "group": "a", "truncated": True},
        {"messages": CONVERSATION, "reward": 0.5, "group": "b"},
    ]
    found = read_rollouts([written(tmp_path, rows)])
    assert (found.format, found.length_measure) == ("messages", WORDS)
    assert shapes(found) == [(0, [3, 1], [False, False]), (1, [3], [False]), (0, [3, 1], [False, False])]
    first = found.trajectories[0]
    assert [turn.observation for turn in first.turns] == ["how many?", "there are 4"]
    assert [dict(turn.rewards) for turn in first.turns] == [{"reward": 0.25}, {"terse": 1.0, "episode's reward": 1.0}]
    assert found.rewards == {
        "episode's reward": ("outcome", 1.0),
        "exact": ("outcome", 1.0),
        "reward": ("turn", 1.0),
        "terse": ("turn", 1.0),
    }
    assert [each.ending for each in found.trajectories] == [Ending.FAILURE, Ending.TURN_LIMIT, Ending.FAILURE]
    assert [each.replica for each in found.trajectories] == [0, 0, 1]


def test_a_prompts_replies_are_context_and_the_same_prompt_is_a_group(tmp_path: Path) -> None:
    rows = [
        {"prompt": CONVERSATION[:2], "completion": [said("assistant", reply)], "reward": 1.0, "example_id": number}
        for reply, number in (("yes", 3), ("no no", 3), ("yes", 4))
    ]
    assert shapes(read_rollouts([written(tmp_path, rows)])) == [(0, [1], [False]), (0, [2], [False]), (1, [1], [False])]


def test_trls_table_has_its_rewards_between_completion_and_advantage(tmp_path: Path) -> None:
    table = {
        "step": [1, 1, 2],
        "prompt": ["p", "p", "p"],
        "completion": ["a b", "c", "d"],
        "accuracy_reward": [1.0, 0.0, 1.0],
        "format_reward": [0.5, None, 0.5],
        "solution": ["4", "4", "4"],
        "advantage": [0.7, -0.7, 0.0],
    }
    file = tmp_path / "completions_00001.parquet"
    pd.DataFrame(table).to_parquet(file)
    found = read_rollouts([file])
    assert (found.format, set(found.rewards)) == ("trl", {"accuracy_reward", "format_reward"})
    assert shapes(found) == [(0, [2], [False]), (0, [1], [False]), (1, [1], [False])], "steps are groups of their own"
    assert dict(found.trajectories[1].turns[0].rewards) == {"accuracy_reward": 0.0}, "what says nothing counts nothing"


def test_verls_rows_of_one_session_are_its_turns(tmp_path: Path) -> None:
    def row(uid: str | None, score: float, output: str = "o") -> dict[str, Any]:
        named = {} if uid is None else {"uid": uid}
        return {"input": "i", "output": output, "gts": "4", "score": score, "step": 7, "acc": True, **named}

    sessions = [row("ab_0_0", 0.0), row("ab_0_1", 1.0, "x y"), row("ab_1_0", 0.5)]
    found = read_rollouts([written(tmp_path, sessions, "7.jsonl")])
    assert shapes(found) == [(0, [1, 2], [False, True]), (0, [1], [False])]
    assert found.trajectories[0].turns[1].rewards == {"reward": 1.0} and found.notes == []
    alone = read_rollouts([written(tmp_path, [row(None, 0.0), row(None, 1.0)], "8.jsonl")])
    assert shapes(alone) == [(0, [1], [False]), (0, [1], [False])] and "one turn per episode" in alone.notes[0]


def test_a_sessions_rows_may_stand_apart_and_out_of_order(tmp_path: Path) -> None:
    rows = [{"input": "i", "output": uid, "score": float(uid[-1]), "uid": uid} for uid in ("a_0_1", "a_1_0", "a_0_0")]
    [session, other] = read_rollouts([written(tmp_path, rows, "7.jsonl")]).trajectories
    assert [turn.reply for turn in session.turns] == ["a_0_0", "a_0_1"] and len(other.turns) == 1
    assert session.turns[-1].rewards == {"reward": 1.0}


def test_a_group_of_one_file_is_no_group_of_another(tmp_path: Path) -> None:
    rows = [{"messages": CONVERSATION, "reward": 1.0, "group": 0}] * 2
    files = [written(tmp_path, rows, f"{step}.jsonl") for step in (1, 2)]
    assert [each.group for each in read_rollouts(files).trajectories] == [0, 0, 1, 1]
    traces = [written(tmp_path, [episode([node(None, "assistant", "a", [5])])], f"t{step}.jsonl") for step in (1, 2)]
    assert [each.group for each in read_rollouts(traces).trajectories] == [0, 1]


def node(parent: int | None, role: str, content: str, tokens: list[int] | None = None) -> dict[str, Any]:
    sampled = tokens is not None
    ids = [1, *(tokens or [])]
    return {
        "parent": parent,
        "message": said(role, content),
        "sampled": sampled,
        "token_ids": ids,
        "mask": [False, *([True] * len(tokens or []))],
        "logprobs": [-0.5] * len(tokens or []),
    }


def episode(nodes: list[dict[str, Any]], **trace: Any) -> dict[str, Any]:
    rewards = {"solved": {"score": 1.0, "weight": 0.5}, "judge": None}
    task = {"type": "Task", "key": "k", "data": {}}
    one = {"task": task, "agent": {"name": "solver", "trainable": True}, "nodes": nodes, "rewards": rewards, **trace}
    return {"id": "e", "task": task, "group": {"id": "g1"}, "ok": True, "traces": [one]}


def test_prime_rls_traces_have_exact_tokens_and_a_branch_is_a_segment(tmp_path: Path) -> None:
    forked = [
        node(None, "user", "q"),
        node(0, "assistant", "first", [5, 6]),
        node(1, "tool", "seen"),
        node(2, "assistant", "second", [7]),
        node(0, "assistant", "other", [8, 9, 10]),
    ]
    judge = episode(forked, agent={"name": "judge", "trainable": False})
    found = read_rollouts([written(tmp_path, [episode(forked), judge], "traces.jsonl")])
    assert (found.format, found.length_measure) == ("prime-rl", EXACT)
    assert shapes(found) == [(0, [2, 1, 3], [False, False, True])]
    turns = found.trajectories[0].turns
    assert [turn.observation for turn in turns] == ["q", "seen", "q"] and turns[2].reply_tokens == (8, 9, 10)
    assert turns[0].log_probabilities == (-0.5, -0.5)
    assert found.rewards == {"solved": ("outcome", 0.5)} and turns[2].rewards == {"solved": 1.0}
    assert found.notes == ["1 traces of agents that are not trained are left out."]


def sample(**changes: Any) -> dict[str, Any]:
    return {
        "group_index": 0,
        "index": 1,
        "rollout_id": None,
        "prompt": "q",
        "tokens": [1, 2, 3, 4, 5, 6],
        "response": "text",
        "response_length": 4,
        "reward": 1.0,
        "loss_mask": [1, 0, 1, 1],
        "rollout_log_probs": [-0.1, 0.0, -0.2, -0.3],
        "status": "completed",
        **changes,
    }


def slime(folder: Path, samples: list[dict[str, Any]]) -> Path:
    return written(folder, [{**each, "rollout_id": place} for place, each in enumerate(samples)], "0.jsonl")


def test_slimes_loss_mask_says_what_was_replied(tmp_path: Path) -> None:
    found = read_rollouts([slime(tmp_path, [sample(), sample(loss_mask=None, status="truncated")])])
    assert shapes(found) == [(0, [1, 2], [False, False]), (0, [4], [False])] and found.length_measure == EXACT
    assert found.format == "slime"
    turns = found.trajectories[0].turns
    assert [turn.reply_tokens for turn in turns] == [(3,), (5, 6)]
    assert [turn.log_probabilities for turn in turns] == [(-0.1,), (-0.2, -0.3)]
    assert found.trajectories[1].turns[0].reply == "text" and found.trajectories[1].ending is Ending.TURN_LIMIT


def test_a_rollouts_samples_of_slime_may_stand_apart(tmp_path: Path) -> None:
    samples = [{**sample(), "rollout_id": place} for place in (0, 1, 0)]
    found = read_rollouts([written(tmp_path, samples, "0.jsonl")])
    assert [len(each.turns) for each in found.trajectories] == [4, 2]


class Marks:
    """Makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_pickle_is_never_opened_and_its_refusal_shows_how_it_is_converted(tmp_path: Path, as_folder: bool) -> None:
    file = tmp_path / "0.pt"
    torch.save({"samples": [Marks(tmp_path / "ran")]}, file)
    with pytest.raises(ConfigurationError, match=r"0\.pt.*0\.jsonl.*TW-pickled-file"):
        read_rollouts([tmp_path if as_folder else file])
    assert not (tmp_path / "ran").exists()


def test_slimes_file_is_read_once_the_shown_command_has_converted_it(tmp_path: Path) -> None:
    file = tmp_path / "it's 0.pt"
    torch.save({"rollout_id": 3, "samples": [sample(tokens=torch.tensor([1, 2, 3, 4, 5, 6]))]}, file)
    with pytest.raises(ConfigurationError) as refused:
        read_rollouts([file])
    command = str(refused.value).partition("as JSON lines: ")[2]
    own_python = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, shell=True, check=True, env=own_python)
    found = read_rollouts([tmp_path])
    assert found.format == "slime" and shapes(found) == [(0, [1, 2], [False, False])]


PAID = {"messages": CONVERSATION, "reward": 1.0}
WRONG: list[tuple[list[Any], str]] = [
    (
        [{"messages": CONVERSATION, "reward": 1.0}, {"messages": CONVERSATION, "reward": "high"}],
        r"line 2: reward must be",
    ),
    (
        [{"messages": CONVERSATION, "reward": 1.0}, {"messages": CONVERSATION[:1], "reward": 1.0}],
        "line 2: messages must",
    ),
    ([{"messages": [said("assistant", "a")]}], "line 1: reward must be a number, or"),
    ([{"messages": [{"content": "a"}], "reward": 1.0}], r"line 1: messages\[0\]\.role must be a text; found null"),
    ([{"messages": "hello", "reward": 1.0}], "line 1: messages must be a list; found 'hello'"),
    ([[1, 2]], "line 1: must be an object with named fields"),
    ([{"question": "?"}], "line 1: must have the fields of a known format .* found question: name it with --format"),
    ([{"input": "i", "output": "o", "score": float("nan")}], "line 1: score must be a finite number; found NaN"),
    ([{"input": "i", "output": 3, "score": 1.0}], "line 1: output must be a text; found 3"),
    ([{"prompt": "p", "completion": "c", "advantage": 0.0}], "line 1: must have a column of rewards"),
    (
        [episode([{**node(None, "assistant", "a", [5]), "mask": [True]}])],
        r"nodes\[0\]\.mask must have one entry",
    ),
    ([episode([node(3, "assistant", "a", [5])])], r"nodes\[0\]\.parent must be null or the index"),
    (
        [{"messages": [said("assistant", "a", tool_calls=7)], "reward": 1.0}],
        r"messages\[0\]\.tool_calls must be a list",
    ),
    ([{"input": "i", "output": "o", "score": 1.0, "step": [1]}], "line 1: step must be a text or a number"),
    (
        [{**episode([node(None, "assistant", "a", [5])]), "group": "g"}],
        "line 1: group must be an object with named fields; found 'g'",
    ),
    ([episode([{**node(None, "assistant", "a", [5]), "mask": 7}])], r"nodes\[0\]\.mask must be a list; found 7"),
    ([episode([{**node(None, "assistant", "a", [5]), "logprobs": 7}])], r"nodes\[0\]\.logprobs must be a list"),
]


@pytest.mark.parametrize(("rows", "message"), WRONG)
def test_a_wrong_row_is_refused_with_its_file_its_number_and_its_field(
    tmp_path: Path, rows: list[Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"rows.jsonl, .*{message}"):
        read_rollouts([written(tmp_path, rows)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_mask": [1, 0]}, r"\b1\b.*loss_mask.*\b4\b.*\b2\b.*TW-rollout-field"),
        ({"response_length": 9}, r"\b1\b.*response_length.*\b6\b.*TW-rollout-field"),
        ({"loss_mask": [0, 0, 0, 0]}, r"\b1\b.*loss_mask.*TW-rollout-field"),
        ({"reward": None}, r"\b1\b.*TW-rollout-field"),
        ({"rollout_log_probs": [0.0]}, r"\b1\b.*rollout_log_probs.*TW-rollout-field"),
        ({"rollout_log_probs": [0.0, None, 0.0, 0.0]}, r"\b1\b.*rollout_log_probs\[1\].*TW-rollout-field"),
        ({"group_index": [1]}, r"\b1\b.*group_index.*TW-rollout-field"),
    ],
)
def test_a_ragged_sample_of_slimes_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_rollouts([slime(tmp_path, [sample(**changes)])])


def test_a_file_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    for file, message in (
        (tmp_path / "none.jsonl", "must exist; found none"),
        (written(tmp_path, [], "empty.jsonl"), "must have rows"),
        (tmp_path, "a folder of rollouts must hold|must have rows"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_rollouts([file])
