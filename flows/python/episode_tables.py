"""Episodes and turns as rows of a table: plain values under the names that a DataFrame's columns get."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turnwise.agent.episode_rewards import summed
from turnwise.data.metrics import episode_value
from turnwise.reporting.data.episodes import ShownEpisode

Row = dict[str, Any]


def episode_rows(episodes: Iterable[tuple[Mapping[str, Any], ShownEpisode]]) -> Iterator[Row]:
    """One row per episode, after what names its run.

    `return` is the weighted sum of all rewards; `reward/NAME` and `world/NAME` are raw sums over the episode's turns.
    """
    for named, episode in episodes:
        sample = episode.sample
        trajectory = sample.trajectory
        yield {
            **named,
            **_where(episode),
            "ending": trajectory.ending.value,
            "success": trajectory.success,
            "turns": int(episode_value(trajectory, "turns")),
            "reply_tokens": int(episode_value(trajectory, "reply_tokens")),
            "return": math.fsum(
                sample.weighted(turn.rewards, level) for turn in trajectory.turns for level in ("turn", "outcome")
            ),
            **{f"reward/{name}": value for name, value in summed([turn.rewards for turn in trajectory.turns]).items()},
            **{f"world/{name}": value for name, value in summed([turn.metrics for turn in trajectory.turns]).items()},
        }


def turn_rows(episodes: Iterable[tuple[Mapping[str, Any], ShownEpisode]]) -> Iterator[Row]:
    """One row per turn, after what names its run and its episode; `advantage` is None where it was not trained on."""
    for named, episode in episodes:
        sample = episode.sample
        for place, turn in enumerate(sample.trajectory.turns):
            yield {
                **named,
                **_where(episode),
                "turn": place,
                "kind": turn.kind.value,
                "observation": turn.observation,
                "reply": turn.reply,
                "thought": turn.thought,
                "actions": list(turn.actions),
                "invalid": turn.invalid,
                "effective": turn.effective,
                "reply_tokens": len(turn.reply_tokens),
                "log_probability": math.fsum(turn.log_probabilities),
                "advantage": None if sample.advantages is None else sample.advantages[place],
                "token_advantages": None if sample.token_advantages is None else sample.token_advantages[place],
                **{f"reward/{name}": value for name, value in turn.rewards.items()},
                **{f"world/{name}": value for name, value in turn.metrics.items()},
            }


def _where(episode: ShownEpisode) -> Row:
    trajectory = episode.sample.trajectory
    return {
        "iteration": episode.iteration,
        "split": episode.occasion,
        "mode": episode.mode,
        "task": episode.task,
        "group": trajectory.group,
        "replica": trajectory.replica,
    }
