"""Trajectories as traces in the real MLflow: a span for each turn, and none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tracking_samples import open_child, traces, trajectory

from turnwise.errors import ConfigurationError
from turnwise.tracking import Recorder


def test_a_trace_has_one_span_per_turn_with_its_rewards_and_advantage(open_recorder: Callable[[], Recorder]) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    weights = {"tool_execution": 1.0, "exact_match": 2.0}
    child.log_trajectories("validation/0005", [trajectory(0), trajectory(1)], [[0.5, -0.5], [1.0, -1.0]], weights)

    first, second = traces(recorder, child)
    episode, *turns = first.data.spans
    assert episode.parent_id is None
    assert [(span.name, span.parent_id) for span in turns] == [
        ("turn 1", episode.span_id),
        ("turn 2", episode.span_id),
    ]
    assert episode.outputs["observation"] == "Correct."
    assert turns[0].inputs == {"observation": "Question: the capital of Chad?"}
    assert turns[0].outputs == {"reply": "<think>look</think><search>Chad</search>"}
    assert [span.attributes["actions"] for span in turns] == [["search[Chad]"], ["answer[N'Djamena]"]]
    assert [span.attributes["rewards"] for span in turns] == [
        {"tool_execution": 0.2},
        {"exact_match": 1.0, "format": 0.5},
    ]
    assert [span.attributes["thought"] for span in turns] == ["look", "read"]
    assert [span.attributes["log_probability"] for span in turns] == [-0.75, -1.5]
    assert [span.attributes["advantage"] for span in turns] == [0.5, -0.5]
    assert [span.attributes["advantage"] for span in second.data.spans[1:]] == [1.0, -1.0]
    # 1.0 * 0.2 + 2.0 * 1.0; `format` has no weight
    scores = {assessment.name: assessment.value for assessment in first.info.assessments}
    assert scores == {
        "success": True,
        "return": pytest.approx(2.2),
        "reward/tool_execution": 0.2,
        "reward/exact_match": 1.0,
        "reward/format": 0.5,
    }


def test_trajectories_of_one_group_share_a_session_that_other_labels_do_not(
    open_recorder: Callable[[], Recorder],
) -> None:
    recorder = open_recorder()
    child = open_child(recorder)
    child.log_trajectories("validation/0000", [trajectory(0), trajectory(1)])
    child.log_trajectories("validation/0005", [trajectory(0)])
    sessions = [trace.info.trace_metadata["mlflow.trace.session"] for trace in traces(recorder, child)]
    assert sessions[0] == sessions[1] != sessions[2]


def test_traces_that_a_kill_left_half_written_are_completed_and_none_is_doubled(
    open_recorder: Callable[[], Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracing.client import TracingClient

    recorder = open_recorder()
    child = open_child(recorder)
    start_trace = TracingClient.start_trace
    written = iter([True, False])

    def killed_after_the_first(self: TracingClient, information: Any) -> Any:
        if not next(written):
            raise KeyboardInterrupt
        return start_trace(self, information)

    batch = [trajectory(replica) for replica in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(TracingClient, "start_trace", killed_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            child.log_trajectories("test", batch)

    open_child(recorder).log_trajectories("test", batch)
    found = traces(recorder, child)
    assert [len(trace.data.spans) for trace in found] == [3, 3, 3]
    assert [Counter(score.name for score in trace.info.assessments)["success"] for trace in found] == [1, 1, 1]


def test_advantages_that_do_not_match_the_turns_are_refused(open_recorder: Callable[[], Recorder]) -> None:
    child = open_child(open_recorder())
    with pytest.raises(ConfigurationError, match=r"\b2\b.*\b3\b.*TW-advantage-shape"):
        child.log_trajectories("test", [trajectory()], [[1.0, 2.0, 3.0]])
