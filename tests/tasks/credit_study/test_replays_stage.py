"""The stage `replays`: many continuations from the state before every turn."""

from __future__ import annotations

from collections import Counter

from stage_samples import Small
from study_samples import continued, continued_task, played

from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import default_store


def test_every_state_is_continued_as_often_as_asked_for_from_what_came_before_it(small: Small) -> None:
    episodes = played(small)
    states = [
        (each, place)
        for each in read_trajectories(default_store().folder(episodes))
        for place in range(len(each.turns))
    ]
    references = continued(small, episodes, count=3)
    found = [each for of_task in references for each in read_trajectories(default_store().folder(of_task))]
    assert Counter(each.group for each in found) == dict.fromkeys(range(len(states)), 3)
    for each in found:
        origin, place = states[each.group]
        assert each.task == origin.task
        assert [turn.reply_tokens for turn in each.turns[:place]] == [
            turn.reply_tokens for turn in origin.turns[:place]
        ]
        assert each.turns[place].observation_tokens == origin.turns[place].observation_tokens
    for group, of_task in enumerate(references):
        own = sum(origin.group == group for origin, _ in states)
        metrics = default_store().metrics(of_task)
        assert (metrics["states"], metrics["continuations"], metrics["lost"]) == (own, 3 * own, 0)


def test_a_task_without_episodes_has_no_continuations(small: Small) -> None:
    nothing = continued_task(small, played(small), group=3)
    assert read_trajectories(default_store().folder(nothing)) == []
    assert default_store().metrics(nothing)["states"] == 0


def test_only_new_replies_are_counted_as_sampled(small: Small) -> None:
    episodes = played(small)
    reference = continued_task(small, episodes, group=1, count=1)
    places = [place for each in read_trajectories(default_store().folder(episodes)) for place in range(len(each.turns))]
    new = sum(
        len(turn.reply_tokens)
        for each in read_trajectories(default_store().folder(reference))
        for turn in each.turns[places[each.group] :]
    )
    assert default_store().metrics(reference)["sampled_tokens"] == new


def test_continuations_repeat(small: Small) -> None:
    episodes = played(small)
    assert continued(small, episodes) == continued(small, episodes)
