"""The stage `credit_study`: every estimator against the true advantages, from replays and score vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from stage_samples import Small, rewarded, saved
from study_samples import Studied, studied

from tasks.credit_study.credit_study import StudyParameters, credit_study, read_study
from turnwise.config.schema import RewardSection
from turnwise.credit_study.truth import Decisions
from turnwise.data.trajectory_files import read_arrays, read_trajectories
from turnwise.errors import WorldLost
from turnwise.store import Reference, default_store


def compared(found: Studied, replays: Sequence[Reference] = ()) -> Reference:
    parameters = StudyParameters(rewards={"goal": RewardSection(level="outcome", weight=1.0)}, turn_limit=2, seed=1)
    return credit_study.fn(
        parameters, episodes=found.episodes, replays=replays or found.replays, score_vectors=found.vectors
    )


@pytest.fixture
def found(small: Small) -> Studied:
    """A study in which some episodes and some continuations earn the goal."""
    made = studied(small)
    return replace(
        made,
        episodes=rewarded(made.episodes, lambda episode: float(episode.replica == 0)),
        replays=[rewarded(each, lambda episode: float((episode.group + episode.replica) % 2)) for each in made.replays],
    )


def test_every_group_whose_states_were_replayed_is_studied(found: Studied) -> None:
    reference = compared(found)
    episodes = read_trajectories(default_store().folder(found.episodes))
    turns = sum(len(each.turns) for each in episodes)
    metrics = default_store().metrics(reference)
    assert (metrics["tasks"], metrics["turns"], metrics["tasks_left_out"]) == (3, turns, 0)
    study = read_study(reference)
    assert (study.tasks, study.turns) == (3, turns)
    assert compared(found) == reference


def test_a_group_with_a_state_that_was_not_replayed_twice_is_left_out(found: Studied) -> None:
    of_first, *others = found.replays
    continuations = read_trajectories(default_store().folder(of_first))
    fewer = saved([each for each in continuations if (each.group, each.replica) != (0, 1)], kind="replays")
    metrics = default_store().metrics(compared(found, [fewer, *others]))
    assert (metrics["tasks"], metrics["tasks_left_out"]) == (2, 1)


def test_where_no_group_is_left_there_is_no_study(found: Studied) -> None:
    with pytest.raises(WorldLost, match="TW-world-lost"):
        compared(found, [saved([], kind="replays")])


def test_turns_are_in_one_state_where_their_episodes_are_the_same_token_for_token(found: Studied) -> None:
    folder = default_store().folder(found.episodes)
    decisions = Decisions.of(read_arrays(folder))
    histories: dict[object, int] = {}
    for episode, states, replies in zip(read_trajectories(folder), decisions.states, decisions.replies, strict=True):
        history: tuple[object, ...] = (episode.group,)
        for turn, state, reply in zip(episode.turns, states, replies, strict=True):
            history = (*history, turn.observation_tokens)
            assert histories.setdefault(history, state) == state
            history = (*history, turn.reply_tokens)
            assert histories.setdefault(history, reply) == reply
    assert len(histories) == len({*histories.values()})  # another history, another number
    assert {states[0] for states in decisions.states[:2]} == {decisions.states[0][0]}  # two episodes of one task
