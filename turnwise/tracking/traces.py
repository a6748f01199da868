"""Trajectories as MLflow traces: one trace per episode, one session per group, one span per turn.

Traces are built afterwards from recorded trajectories, so that sampling stays pure and can be cached, and only chosen
episodes are shown. MLflow's own tracing observes code while it runs: it draws ids from Python's global generator,
writes from a thread, and turns failures into warnings. Here ids derive from the run, the label and the episode, so that
logging again after a kill replaces a trace and adds none, and everything is written before `log_traces` returns.

Trajectories record no times, so every turn lasts one millisecond in a trace; only the order is meaningful.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from turnwise.errors import ConfigurationError
from turnwise.tracking.library import every_page, mlflow
from turnwise.tracking.values import mlflow_name, shortened_tags

if TYPE_CHECKING:
    from turnwise.data.trajectory import Trajectory, Turn

LABEL = "turnwise.label"
PREVIEW_LENGTH = 1000
NANOSECONDS_PER_TURN = 1_000_000


def log_traces(
    client: Any,
    run: Any,
    label: str,
    trajectories: Sequence[Trajectory],
    advantages: Sequence[Sequence[float]] | None,
    weights: Mapping[str, float] | None,
    model: str | None = None,
) -> None:
    """Write the traces of those trajectories that the run does not yet have under this label.

    `advantages` has one number per turn of each trajectory; `weights` are by reward; `model` is the id of the logged
    model that sampled them, whose page lists them. Raises ConfigurationError where the number of advantages does not
    match that of turns.
    """
    aligned = _one_per_turn(trajectories, advantages)
    has_spans_by_id = _recorded_traces(client, run, label)
    now = time.time_ns()
    store = mlflow().tracing.client.TracingClient(client.tracking_uri)
    spans: list[Any] = []
    for trajectory, turn_advantages in zip(trajectories, aligned, strict=True):
        digits = _digits(run.info.run_id, label, str(trajectory.group), str(trajectory.replica), length=32)
        if has_spans_by_id.get(f"tr-{digits}"):
            continue
        episode = _episode_spans(digits, trajectory, turn_advantages, now)
        # Before the spans: to add the summary of a trace that has spans takes MLflow twice as long.
        if f"tr-{digits}" not in has_spans_by_id:
            store.start_trace(_information(run, label, trajectory, episode[0], weights, model))
        spans += episode
    if spans:
        store.log_spans(run.info.experiment_id, spans)


def _one_per_turn(
    trajectories: Sequence[Trajectory], advantages: Sequence[Sequence[float]] | None
) -> Sequence[Sequence[float | None]]:
    turns = [len(trajectory.turns) for trajectory in trajectories]
    if advantages is None:
        return [[None] * count for count in turns]
    if [len(turn_advantages) for turn_advantages in advantages] != turns:
        raise ConfigurationError(
            f"advantages must have one number per turn of each trajectory, {turns}; "
            f"found {[len(turn_advantages) for turn_advantages in advantages]}",
            "TW-advantage-shape",
        )
    return advantages


def _recorded_traces(client: Any, run: Any, label: str) -> dict[str, bool]:
    """The ids of the traces under a label, each with whether it has its spans: a kill may have left its summary alone.

    MLflow tags a trace when it gets spans.
    """
    has_spans = mlflow().tracing.constant.TraceTagKey.SPANS_LOCATION
    search = partial(
        client.search_traces,
        locations=[run.info.experiment_id],
        filter_string=f"tags.`{LABEL}` = '{label}'",
        run_id=run.info.run_id,
        include_spans=False,
    )
    return {trace.info.trace_id: has_spans in trace.info.tags for trace in every_page(search)}


def _episode_spans(digits: str, trajectory: Trajectory, advantages: Sequence[float | None], start: int) -> list[Any]:
    """The root span of an episode, and a span for each of its turns."""
    episode = _span(
        digits,
        name="episode",
        span=_digits(digits, "episode", length=16),
        parent=None,
        start=start,
        turns=len(trajectory.turns),
        kind="AGENT",
        inputs={"task": trajectory.task.id, "observation": _first_observation(trajectory)},
        outputs={"reply": _last_reply(trajectory), "observation": trajectory.final_observation},
        attributes={
            "world": trajectory.task.world,
            "split": trajectory.task.split,
            "group": trajectory.group,
            "replica": trajectory.replica,
            "ending": trajectory.ending.value,
            "success": trajectory.success,
            "tags": dict(trajectory.task.tags),
        },
    )
    turns = zip(trajectory.turns, advantages, strict=True)
    return [episode, *(_turn_span(digits, number, turn, of, start) for number, (turn, of) in enumerate(turns))]


def _turn_span(digits: str, number: int, turn: Turn, advantage: float | None, start: int) -> Any:
    return _span(
        digits,
        name=f"turn {number + 1}",
        span=_digits(digits, "turn", str(number), length=16),
        parent=_digits(digits, "episode", length=16),
        start=start + number * NANOSECONDS_PER_TURN,
        turns=1,
        kind="CHAIN",
        inputs={"observation": turn.observation},
        outputs={"reply": turn.reply},
        attributes={
            "actions": list(turn.actions),
            "rewards": dict(turn.rewards),
            "advantage": advantage,
            "thought": turn.thought,
            "kind": turn.kind.value,
            "attempt": turn.attempt,
            "opens_segment": turn.opens_segment,
            "invalid": turn.invalid,
            "effective": turn.effective,
            "metrics": dict(turn.metrics),
            "log_probability": sum(turn.log_probabilities),
            "observation_tokens": len(turn.observation_tokens),
            "reply_tokens": len(turn.reply_tokens),
        },
    )


def _span(
    digits: str,
    *,
    name: str,
    span: str,
    parent: str | None,
    start: int,
    turns: int,
    kind: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attributes: Mapping[str, Any],
) -> Any:
    reserved = {"traceRequestId": f"tr-{digits}", "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs}
    values = {**attributes, **{f"mlflow.{key}": value for key, value in reserved.items()}}
    return mlflow().entities.Span.from_dict(
        {
            "name": name,
            "trace_id": f"tr-{digits}",
            "span_id": span,
            "parent_span_id": parent,
            "start_time_unix_nano": start,
            "end_time_unix_nano": start + turns * NANOSECONDS_PER_TURN,
            "status": {"code": "STATUS_CODE_OK"},
            "attributes": {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()},
        }
    )


def _information(
    run: Any, label: str, trajectory: Trajectory, episode: Any, weights: Mapping[str, float] | None, model: str | None
) -> Any:
    """The trace's summary: previews, tags to search by, and scores, as shown in MLflow's list of traces."""
    entities = mlflow().entities
    return entities.TraceInfo(
        trace_id=episode.trace_id,
        trace_location=entities.TraceLocation.from_experiment_id(run.info.experiment_id),
        request_time=episode.start_time_ns // 1_000_000,
        execution_duration=(episode.end_time_ns - episode.start_time_ns) // 1_000_000,
        state=entities.TraceState.OK,
        request_preview=_first_observation(trajectory)[:PREVIEW_LENGTH],
        response_preview=_last_reply(trajectory)[:PREVIEW_LENGTH],
        trace_metadata={
            "mlflow.sourceRun": run.info.run_id,
            "mlflow.trace.session": f"{run.info.run_id[:8]} {label} group {trajectory.group:04d}",
            "mlflow.trace_schema.version": "3",
            **({} if model is None else {mlflow().tracing.constant.TraceMetadataKey.MODEL_ID: model}),
        },
        tags=shortened_tags(
            {
                "mlflow.traceName": f"{label} group {trajectory.group:04d} replica {trajectory.replica}",
                LABEL: label,
                "turnwise.task": trajectory.task.id,
                "turnwise.world": trajectory.task.world,
                "turnwise.ending": trajectory.ending.value,
                **{f"turnwise.task.{key}": str(value) for key, value in sorted(trajectory.task.tags.items())},
            }
        ),
        assessments=[
            entities.Feedback(name=mlflow_name(name), value=value, source=entities.AssessmentSource("CODE", "turnwise"))
            for name, value in _scores(trajectory, weights).items()
        ],
    )


def _scores(trajectory: Trajectory, weights: Mapping[str, float] | None) -> dict[str, float | bool]:
    """The scores shown for an episode: success, each reward's sum (of the last attempt), and the weighted return."""
    names = sorted({name for turn in trajectory.turns for name in turn.rewards})
    scores: dict[str, float | bool] = {"success": trajectory.success}
    scores |= {f"reward/{name}": trajectory.total(name) for name in names}
    if weights is not None:
        scores["return"] = sum(weight * trajectory.total(name) for name, weight in weights.items())
    return scores


def _first_observation(trajectory: Trajectory) -> str:
    return trajectory.turns[0].observation if trajectory.turns else trajectory.final_observation


def _last_reply(trajectory: Trajectory) -> str:
    return trajectory.turns[-1].reply if trajectory.turns else ""


def _digits(*parts: str, length: int) -> str:
    """A deterministic id of `length` hexadecimal digits, a hash of the parts."""
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=length // 2).hexdigest()
