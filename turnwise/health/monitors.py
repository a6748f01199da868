"""Monitors: what a batch of trajectories says about the health of training, often before the reward does.

The collapse that RAGEN calls the Echo Trap (arXiv 2504.20073, section 4) begins with the spread of rewards within
groups, goes on with the entropy of replies, and shows in the gradient last, when there is no way back. Measured at
every iteration, from what was sampled anyway:

    reward_deviation      mean over groups of the unbiased deviation of their raw weighted rewards
    dead_groups           share of groups without any deviation
    entropy               -mean over reply tokens of log p, nats
    reply_tokens          mean length of a reply
    truncated_replies     share of replies that were cut off at their maximum length
    invalid_replies       share of replies that could not be read as actions
    repeated_phrases      1 - distinct n-grams / n-grams, of each reply by itself, all replies together
    shared_phrases        share of the distinct n-grams of a first reply that another first reply of its group has
    distinct_replies      distinct first replies of a group / its trajectories
    success               share of trajectories that the world calls solved

and with the history of the run

    reward_deviation_of_start, entropy_of_start, reply_tokens_of_start    over the mean of the run's first iterations
    gradient_norm_of_median                                               over the running median

First replies are those that a group makes to the same context. A probe, which asks models and is made less often, adds
`kl_warm_start` (mean over reply tokens of the estimate k3, nats) and, with l_ij the log-probability of thought i under
prompt j,

    mutual_information    mean over i of  l_ii - log (1/N sum_j exp l_ij),  nats, at most log N
    retrieval_accuracy    share of i whose l_ij is largest at j = i

as RAGEN-2 does (arXiv 2604.06268): where thoughts fit any prompt equally well, they are templates.

Differs from the papers: the entropy is the estimate from the sampled log-probabilities, at the sampling's temperature,
and not the learner's exact one (which is `update/entropy_nats`): it is there when an update was skipped, and costs
nothing. Only replies that are trained on count. Thoughts are scored whole, not per token, and those of the first reply
alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.credit.selection import group_deviations
from turnwise.data.trajectory import Trajectory, Turn

Values = Mapping[str, float]
"""The monitors of one iteration, by name; what could not be measured is left out."""

OF_BATCH = (
    "reward_deviation",
    "dead_groups",
    "entropy",
    "reply_tokens",
    "truncated_replies",
    "invalid_replies",
    "repeated_phrases",
    "shared_phrases",
    "distinct_replies",
    "success",
)
OF_START = ("reward_deviation", "entropy", "reply_tokens")
"""Those that are compared with the run's own start."""
OF_HISTORY = (*(f"{name}_of_start" for name in OF_START), "gradient_norm_of_median")
OF_PROBE = ("kl_warm_start", "mutual_information", "retrieval_accuracy")
MONITORS = (*OF_BATCH, "gradient_norm", *OF_HISTORY, *OF_PROBE)
"""Every monitor that an alarm may watch."""

FEWEST_NORMS = 3
"""Gradient norms that a running median is taken of, at least: of two, neither is usual."""


def measure(
    trajectories: Sequence[Trajectory], rewards: Sequence[float], *, end_tokens: Collection[int], n_gram: int
) -> dict[str, float]:
    """The monitors of one batch. `rewards` has the raw weighted reward of each trajectory; `end_tokens` are those that
    end a reply: one that ends otherwise was cut off.
    """
    replies = [turn for trajectory in trajectories for turn in trajectory.turns if turn.trained]
    if not replies:
        return {}
    deviations = group_deviations([trajectory.group for trajectory in trajectories], rewards)
    first = _first_replies(trajectories)
    return {
        "reward_deviation": statistics.fmean(deviations.values()),
        "dead_groups": statistics.fmean(deviation == 0.0 for deviation in deviations.values()),
        "entropy": -math.fsum(value for turn in replies for value in turn.log_probabilities)
        / sum(len(turn.log_probabilities) for turn in replies),
        "reply_tokens": statistics.fmean(len(turn.reply_tokens) for turn in replies),
        "truncated_replies": statistics.fmean(not set(turn.reply_tokens[-1:]) & set(end_tokens) for turn in replies),
        "invalid_replies": statistics.fmean(turn.invalid is not None for turn in replies),
        "repeated_phrases": _repeated([turn.reply_tokens for turn in replies], n_gram),
        "shared_phrases": _shared(first, n_gram),
        "distinct_replies": statistics.fmean(len(set(group)) / len(group) for group in first),
        "success": statistics.fmean(trajectory.success for trajectory in trajectories),
    }


def compare(history: Sequence[Values], *, start: int, window: int) -> dict[str, float]:
    """What the last of a run's iterations is beside those before it; `history` has all of them in order.

    Nothing is said of the start before it is over, nor of a gradient before there is a median to compare it with.
    """
    now, found = history[-1], {}
    for name in OF_START:
        first = [values[name] for values in history[:start] if name in values]
        if len(history) > start and name in now and first and (mean := statistics.fmean(first)) > 0:
            found[f"{name}_of_start"] = now[name] / mean
    before = [values["gradient_norm"] for values in history[:-1] if "gradient_norm" in values][-window:]
    if "gradient_norm" in now and len(before) >= FEWEST_NORMS and (median := statistics.median(before)) > 0:
        found["gradient_norm_of_median"] = now["gradient_norm"] / median
    return found


def information(scores: Any) -> dict[str, float]:
    """Mutual information and retrieval accuracy from an N x N matrix of log-probabilities, thought by prompt.

    A thought that several prompts explain equally well counts as found by chance among them. N must be at least 2.
    """
    matrix = np.asarray(scores, dtype=np.float64)
    count = len(matrix)
    if count < 2 or matrix.shape != (count, count):
        raise ValueError(f"scores must be a square of at least 2 thoughts by as many prompts; found {matrix.shape}")
    own = matrix.diagonal()
    gained = own - np.logaddexp.reduce(matrix, axis=1) + math.log(count)
    best = matrix == matrix.max(axis=1, keepdims=True)
    return {
        "mutual_information": float(gained.mean()),
        "retrieval_accuracy": float((best.diagonal() / best.sum(axis=1)).mean()),
    }


def _first_replies(trajectories: Sequence[Trajectory]) -> list[list[tuple[int, ...]]]:
    """By group, the first trained reply of each of its trajectories."""
    groups: dict[int, list[tuple[int, ...]]] = {}
    for trajectory in trajectories:
        first = first_trained(trajectory)
        if first is not None:
            groups.setdefault(trajectory.group, []).append(trajectory.turns[first].reply_tokens)
    return list(groups.values())


def first_trained(trajectory: Trajectory) -> int | None:
    """The index of the first turn that is trained on: the one that a group's trajectories reach in the same context."""
    return next((index for index, turn in enumerate(trajectory.turns) if turn.trained), None)


def _phrases(tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[begin : begin + length]) for begin in range(len(tokens) - length + 1)]


def _repeated(replies: Sequence[Sequence[int]], length: int) -> float:
    """Of the phrases of all replies, the share that stood in the same reply before; 0 where none is long enough."""
    phrases = [_phrases(tokens, length) for tokens in replies]
    total = sum(map(len, phrases))
    return 1.0 - sum(len(set(of_reply)) for of_reply in phrases) / total if total else 0.0


def _shared(groups: Sequence[Sequence[Sequence[int]]], length: int) -> float:
    """Of the distinct phrases of each reply, the share that another reply of the group has; the mean over replies."""
    shares = []
    for group in groups:
        phrases = [set(_phrases(tokens, length)) for tokens in group]
        for place, own in enumerate(phrases):
            others = set().union(*phrases[:place], *phrases[place + 1 :])
            if own:
                shares.append(len(own & others) / len(own))
    return statistics.fmean(shares) if shares else 0.0


def thought_length(turn: Turn, decode: Any) -> int:
    """How many of a reply's tokens its thought takes, from the reply's beginning; 0 where there is none.

    `decode` gives the text of tokens. Nothing is encoded again: the thought ends with the token that completes it.
    """
    if not turn.thought:
        return 0
    for length in range(1, len(turn.reply_tokens) + 1):
        if turn.thought in decode(turn.reply_tokens[:length]):
            return length
    return 0
