"""Trajectories that the tests of the data share: any that hypothesis makes, and one of two turns worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from turnwise.data.trajectory import Ending, Trajectory, Turn, TurnKind
from turnwise.world import SPLITS, Task

texts = st.text(max_size=12)
numbers = st.dictionaries(texts, st.floats(allow_nan=False), max_size=3)
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
tasks = st.builds(
    Task,
    world=texts,
    id=texts,
    split=st.sampled_from(SPLITS),
    seed=st.integers(0, 2**63 - 1),
    tags=st.dictionaries(texts, texts | st.integers(), max_size=3),
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    reply_tokens = draw(token_ids)
    size = len(reply_tokens)
    return Turn(
        observation=draw(texts),
        observation_tokens=draw(token_ids),
        reply=draw(texts),
        reply_tokens=reply_tokens,
        log_probabilities=tuple(draw(st.lists(st.floats(max_value=0, allow_nan=False), min_size=size, max_size=size))),
        thought=draw(texts),
        actions=tuple(draw(st.lists(texts, max_size=3))),
        invalid=draw(st.none() | texts),
        effective=draw(st.booleans()),
        rewards=draw(numbers),
        metrics=draw(numbers),
        state=draw(st.none() | texts),
        trained=draw(st.booleans()),
        kind=draw(st.sampled_from(TurnKind)),
        opens_segment=draw(st.booleans()),
        attempt=draw(st.integers(0, 3)),
        asked=draw(texts),
    )


endings = st.sampled_from([ending for ending in Ending if ending is not Ending.WORLD_LOST])
trajectories = st.builds(
    Trajectory,
    task=tasks,
    group=st.integers(0, 1000),
    replica=st.integers(0, 1000),
    turns=st.lists(turns(), max_size=3).map(tuple),
    ending=endings,
    final_observation=texts,
    earlier_endings=st.lists(endings, max_size=2).map(tuple),
)


def turn(observation: Sequence[int], reply: Sequence[int], **changes: Any) -> Turn:
    log_probabilities = tuple(-float(token) / 8 for token in reply)
    return Turn("seen", tuple(observation), "said", tuple(reply), log_probabilities, **{"actions": ("up",), **changes})


TASK = Task("hill", "hill/train/7", "train", 7, {"hops": 2, "kind": "Zürich"})
TWO_TURNS = Trajectory(
    TASK,
    group=3,
    replica=1,
    turns=(
        turn([10, 11], [1, 2, 3], rewards={"goal": 0.25, "format": 1.0}, metrics={"searches": 2.0}),
        turn([12], [4, 5], rewards={"goal": -1.0}, metrics={"goal": 50.0, "searches": 1.0}, invalid="No.", actions=()),
    ),
    ending=Ending.TURN_LIMIT,
    final_observation="the end",
)
