"""The stage `probe`: the distance from the warm start, and whether thoughts depend on their prompts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from stage_samples import Small, saved

from tasks.health.health import ProbeParameters, probe
from tasks.playing import frame_of
from tasks.prepare.materials import PolicyParameters, initial_policy
from turnwise.config.model_settings import LearnerParameters
from turnwise.data.trajectory import Trajectory, Turn
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

THOUGHT = 3
"""Tokens of the thoughts of `thoughtful`."""


def probed(small: Small, rollout: Reference, warm_start: Reference | None = None, **changes: Any) -> dict[str, float]:
    values = {"temperature": 1.0, "micro_batch_tokens": 1024, "sample": 6, "seed": 1, "iteration": 1, **changes}
    made = probe.fn(
        ProbeParameters(learner=LearnerParameters(compute=small.experiment.compute), **values),
        policy=small.policy,
        warm_start=warm_start or small.policy,
        rollout=rollout,
        tokenizer=small.tokenizer,
    )
    return default_store().metrics(made)


def episodes(small: Small) -> list[Trajectory]:
    return read_trajectories(default_store().folder(small.rollout))


def thoughtful(small: Small) -> Reference:
    """The rollout, with the beginning of each reply as its thought."""
    frame = frame_of(small.tokenizer)

    def thinking(turn: Turn) -> Turn:
        return replace(turn, thought=frame.decode(turn.reply_tokens[:THOUGHT]))

    return saved([replace(each, turns=tuple(map(thinking, each.turns))) for each in episodes(small)])


def tokens(turns: tuple[Turn, ...]) -> int:
    return sum(len(turn.observation_tokens) + len(turn.reply_tokens) for turn in turns)


def test_the_policy_that_sampled_has_no_distance_from_itself_and_every_token_of_the_sample_is_counted(
    small: Small,
) -> None:
    metrics = probed(small, small.rollout)
    assert metrics["kl_warm_start"] == pytest.approx(0.0, abs=1e-8)
    assert metrics["scored_tokens"] == sum(tokens(each.turns) for each in episodes(small))
    assert metrics["prompts"] == 0 and "mutual_information" not in metrics, "an untrained policy writes no thought"


def test_another_warm_start_is_at_a_distance(small: Small) -> None:
    section = small.experiment.policy.model_copy(update={"seed": 99, "initial_deviation": 0.3})
    other = initial_policy.fn(PolicyParameters.of(section, None, 320), tokenizer=small.tokenizer)
    assert probed(small, small.rollout, warm_start=other)["kl_warm_start"] > 1e-3


def test_every_thought_is_scored_under_every_prompt(small: Small) -> None:
    metrics = probed(small, thoughtful(small))
    # One first reply for each of the two tasks: two thoughts under two prompts.
    prompts = {each.task.id: len(each.turns[0].observation_tokens) for each in episodes(small)}
    crossed = 2 * sum(prompts.values()) + 2 * 2 * THOUGHT
    assert metrics["prompts"] == 2
    assert metrics["scored_tokens"] == sum(tokens(each.turns) for each in episodes(small)) + crossed
    assert metrics["mutual_information"] <= math.log(2)
    assert metrics["retrieval_accuracy"] in (0.0, 0.5, 1.0)


def test_the_sample_bounds_what_is_scored_and_the_iteration_draws_it(small: Small) -> None:
    counts = {probed(small, small.rollout, sample=1, iteration=number)["scored_tokens"] for number in range(1, 7)}
    assert counts <= {float(tokens(each.turns)) for each in episodes(small)} and len(counts) > 1
    assert probed(small, small.rollout, sample=1) == probed(small, small.rollout, sample=1)


def test_a_batch_without_an_episode_measures_nothing(small: Small) -> None:
    assert probed(small, saved([])) == {"scored_tokens": 0.0, "prompts": 0.0}
