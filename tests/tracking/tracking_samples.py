"""What several tests record, an episode among it, and the traces that they find."""

from __future__ import annotations

from typing import Any

from turnwise.data.trajectory import Ending, Trajectory, Turn
from turnwise.tracking import Dataset, Recorder, TrackedRun
from turnwise.world import Task

TASK_SET = Dataset("search/train", "0123456789abcdef" * 2, "training", "store/task_set/0123", rows=64)
PARAMETERS = {"credit": {"estimator": "mt-grpo", "options": {"epsilon": 1e-4}}, "seeds": [1, 2], "note": None}


def open_child(recorder: Recorder, identity: str = "child-1") -> TrackedRun:
    parent = recorder.parent("credit rules", "parent-1", PARAMETERS)
    return recorder.child(parent, "mt-grpo seed 1", identity, PARAMETERS, {"turnwise.commit": "136577a"}, [TASK_SET])


def trajectory(replica: int = 0) -> Trajectory:
    """Two turns, a search and an answer, as a search agent plays them."""
    search = Turn(
        observation="Question: the capital of Chad?",
        observation_tokens=(1, 2, 3),
        reply="<think>look</think><search>Chad</search>",
        reply_tokens=(4, 5),
        log_probabilities=(-0.5, -0.25),
        thought="look",
        actions=("search[Chad]",),
        rewards={"tool_execution": 0.2},
    )
    answer = Turn(
        observation="N'Djamena is the capital of Chad.",
        observation_tokens=(6,),
        reply="<think>read</think><answer>N'Djamena</answer>",
        reply_tokens=(7, 8, 9),
        log_probabilities=(-0.5, -0.5, -0.5),
        thought="read",
        actions=("answer[N'Djamena]",),
        rewards={"exact_match": 1.0, "format": 0.5},
    )
    task = Task("search", "capital/TD", "validation", 7, {"hops": 1})
    return Trajectory(task, 3, replica, (search, answer), Ending.SUCCESS, "Correct.")


def traces(recorder: Recorder, run: TrackedRun) -> list[Any]:
    found = recorder._client.search_traces(locations=[recorder._experiment_id], run_id=run.id)
    return sorted(found, key=lambda trace: trace.info.tags["mlflow.traceName"])
