"""Monitors: what a batch of trajectories says about the health of training, often before the reward does.

The collapse that RAGEN calls the Echo Trap (arXiv 2504.20073, section 4) begins with the spread of rewards within
groups, goes on with the entropy of replies, and shows in the gradient last, when there is no way back. Measured at
every iteration, from what was sampled anyway:

    reward_deviation      mean over groups of the unbiased deviation of their raw weighted rewards
    zero_variance_groups  share of zero-variance groups (deviation 0)
    entropy               -mean over reply tokens of log p, nats
    reply_tokens          mean length of a reply
    truncated_replies     share of replies that were cut off at their maximum length
    invalid_replies       share of replies that could not be read as actions
    repeated_phrases      1 - distinct n-grams / n-grams, of each reply by itself, all replies together
    shared_phrases        share of the distinct n-grams of a first reply that another first reply of its group has
    distinct_replies      distinct first replies of a group / its trajectories
    success               share of trajectories that the world calls solved

and with the history of the run

    reward_deviation_of_start, entropy_of_start, reply_tokens_of_start    divided by the mean of the first iterations
    gradient_norm_of_median                                               divided by the running median

First replies are those that a group makes to the same context. A probe, which runs models and is made less often, adds
`kl_warm_start` (mean over reply tokens of the estimate k3, nats) and, with l_ij the log-probability of thought i under
prompt j,

    mutual_information    mean over i of  l_ii - log (1/N sum_j exp l_ij),  nats, at most log N
    retrieval_accuracy    share of i whose l_ij is largest at j = i

as RAGEN-2 does (arXiv 2604.06268): where thoughts fit any prompt equally well, they are templates.

Differs from the papers: the entropy is estimated from the sampled log-probabilities, at the sampling temperature. The
learner's exact entropy is `update/entropy_nats`; the estimate costs nothing and exists when an update was skipped, too.
Only replies that are trained on count. Only the thought of the first reply is scored, as a whole and not per token.
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
    "zero_variance_groups",
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
"""The monitors that are also compared with the run's own start."""
OF_HISTORY = (*(f"{name}_of_start" for name in OF_START), "gradient_norm_of_median")
OF_PROBE = ("kl_warm_start", "mutual_information", "retrieval_accuracy")
MONITORS = (*OF_BATCH, "gradient_norm", *OF_HISTORY, *OF_PROBE)
"""Every monitor that an alarm may watch."""

FEWEST_NORMS = 3
"""The fewest gradient norms that a running median is taken of: with two, neither is the usual one."""


def measure(
    trajectories: Sequence[Trajectory], rewards: Sequence[float], *, end_tokens: Collection[int], n_gram: int
) -> dict[str, float]:
    """The monitors of one batch; empty where no turn is trained.

    `rewards` has the raw weighted reward of each trajectory. `end_tokens` are the token ids that end a reply: a reply
    whose last token is another one was cut off. `n_gram` is the phrase length, in tokens.
    """
    replies = [turn for trajectory in trajectories for turn in trajectory.turns if turn.trained]
    if not replies:
        return {}
    deviations = group_deviations([trajectory.group for trajectory in trajectories], rewards)
    first = _first_replies(trajectories)
    return {
        "reward_deviation": statistics.fmean(deviations.values()),
        "zero_variance_groups": statistics.fmean(deviation == 0.0 for deviation in deviations.values()),
        "entropy": -math.fsum(value for turn in replies for value in turn.log_probabilities)
        / sum(len(turn.log_probabilities) for turn in replies),
        "reply_tokens": statistics.fmean(len(turn.reply_tokens) for turn in replies),
        "truncated_replies": statistics.fmean(not set(turn.reply_tokens[-1:]) & set(end_tokens) for turn in replies),
        "invalid_replies": statistics.fmean(turn.invalid is not None for turn in replies),
        "repeated_phrases": _repeated_phrases([turn.reply_tokens for turn in replies], n_gram),
        "shared_phrases": _shared_phrases(first, n_gram),
        "distinct_replies": statistics.fmean(len(set(group)) / len(group) for group in first),
        "success": statistics.fmean(trajectory.success for trajectory in trajectories),
    }


def compare(history: Sequence[Values], *, start: int, window: int) -> dict[str, float]:
    """The monitors that compare the last iteration with earlier ones; `history` has all iterations in order.

    The first `start` iterations are the run's start; they are compared with only once they are over. The median is of
    at most `window` earlier gradient norms, and at least `FEWEST_NORMS`.
    """
    now, ratios = history[-1], {}
    for name in OF_START:
        first = [values[name] for values in history[:start] if name in values]
        if len(history) > start and name in now and first and (mean := statistics.fmean(first)) > 0:
            ratios[f"{name}_of_start"] = now[name] / mean
    before = [values["gradient_norm"] for values in history[:-1] if "gradient_norm" in values][-window:]
    if "gradient_norm" in now and len(before) >= FEWEST_NORMS and (median := statistics.median(before)) > 0:
        ratios["gradient_norm_of_median"] = now["gradient_norm"] / median
    return ratios


def remembered(history: Sequence[Values], *, start: int, window: int) -> list[Values]:
    """The part of a history that `compare` reads when the next iteration is appended to it; it does not grow.

    The first `start` iterations, and of later ones the last `window` with a gradient norm and the last of all.
    """
    later = [values for values in history[start:-1] if "gradient_norm" in values][-window:]
    return [*history[:start], *later, *history[start:][-1:]]


def information(scores: Any) -> dict[str, float]:
    """Mutual information and retrieval accuracy from an N x N matrix of log-probabilities, thought by prompt.

    Where several prompts tie for the largest entry of a row, its own prompt counts 1 / (number of ties) as retrieved.
    Raises ValueError unless the matrix is square with N at least 2.
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
    """The first trained reply of each trajectory, as token ids: one list per group."""
    groups: dict[int, list[tuple[int, ...]]] = {}
    for trajectory in trajectories:
        first = first_trained(trajectory)
        if first is not None:
            groups.setdefault(trajectory.group, []).append(trajectory.turns[first].reply_tokens)
    return list(groups.values())


def first_trained(trajectory: Trajectory) -> int | None:
    """The index of the first trained turn, whose context is the same for all of a group; None without trained turns."""
    return next((index for index, turn in enumerate(trajectory.turns) if turn.trained), None)


def _phrases(tokens: Sequence[int], length: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[begin : begin + length]) for begin in range(len(tokens) - length + 1)]


def _repeated_phrases(replies: Sequence[Sequence[int]], length: int) -> float:
    """The share of all phrases that occurred earlier in the same reply; 0 where no reply is long enough for one."""
    phrases = [_phrases(tokens, length) for tokens in replies]
    total = sum(map(len, phrases))
    return 1.0 - sum(len(set(reply_phrases)) for reply_phrases in phrases) / total if total else 0.0


def _shared_phrases(groups: Sequence[Sequence[Sequence[int]]], length: int) -> float:
    """The mean over replies of the share of a reply's distinct phrases that another reply of its group has, too.

    Replies too short for a phrase are left out; 0 where none is left.
    """
    shares = []
    for group in groups:
        phrases = [set(_phrases(tokens, length)) for tokens in group]
        for place, own in enumerate(phrases):
            others = set().union(*phrases[:place], *phrases[place + 1 :])
            if own:
                shares.append(len(own & others) / len(own))
    return statistics.fmean(shares) if shares else 0.0


def thought_length(turn: Turn, decode: Any) -> int:
    """The number of tokens from the beginning of a reply to the end of its thought; 0 where there is no thought.

    `decode` maps token ids to text. Text is not encoded again, which could give other tokens: the thought ends with the
    token that completes its text.
    """
    if not turn.thought:
        return 0
    for length in range(1, len(turn.reply_tokens) + 1):
        if turn.thought in decode(turn.reply_tokens[:length]):
            return length
    return 0
