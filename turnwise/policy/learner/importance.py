"""Importance weights that correct for the mismatch between engine and learner, and for a lag of the sampling policy.

Engine and learner hold the same weights and compute slightly different probabilities (kernels, precision). With
`rollout.lag` the engine's weights are older than the learner's, too. With log p, recomputed by the learner for the
sampled tokens before the first optimizer step, and log mu, the engine's:

    token       w_t = exp(log p(t) - log mu(t))
    sequence    w   = exp(sum over the sequence's reply tokens of log p(t) - log mu(t)), for each of its tokens

    truncate    max(min(w, high), low)              biased, with bounded variance; low is 0 unless set
    mask        w where low <= w <= high, else 0    tokens on which the two disagree are not trained on
    none        1                                   no weights: for `sequence_mask` alone

With `over_mean` weights are divided by their mean over the batch: over reply tokens, or over sequences. With
`sequence_mask` the weights of a whole sequence are 0 where a statistic of its reply tokens is out of bounds. Of a token

    k1 = log p - log mu                             kept where low <= exp(statistic) <= high
    k2 = k1^2 / 2,    k3 = exp(k1) - 1 - k1         kept where statistic <= high

and the statistic is the `mean`, the `sum` or the `maximum` over them. The mean of k1 is the log of the geometric mean
of the ratios, which does not grow with the length as their product does; its maximum means both extremes, so that one
token that is out of bounds drops its sequence.

The policy loss of a token is multiplied by its weight, a constant. The ratio of the loss is then taken to p, the
*proximal* policy, instead of mu: w corrects for the difference between engine and learner, while the ratio and its clip
follow the learner's own steps (Hilton et al. 2021, arXiv 2110.00641). Without a correction the ratio is taken to mu and
does both. With a lag w = (p / q) (q / mu), q being the learner with the weights that sampled: the first factor is the
lag's, the second the mismatch's, and the bounds apply to their product. The penalty for divergence from a reference and
the entropy bonus are not weighted.

Papers: truncated importance sampling for engines, Yao et al. 2025 ("Your efficient RL framework secretly brings you
off-policy RL training"), high = 2, per token; IcePop (Ring-1T, arXiv 2510.18855), masks per token outside [0.5, 5]; the
masks of sequences are verl's `rollout_rs` (whose k1 is log mu - log p: its bounds are the reciprocals), SkyRL's
geometric and outlier masks and OpenRLHF's `seq-mask-tis`. Bias: a mask leaves out what engine and learner disagree
about, whatever it earned; dividing by the mean has a bias that falls with the batch's size.
What differs: both can be taken per sequence. A sequence is what the learner computes at once: where a context policy
has cut a trajectory into segments, or `optimization.sample` into turns, each of them has a weight of its own. A log
weight is clamped to [-20, 20], as the losses clamp theirs, so that the weight stays finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from turnwise.config.optimization import ImportanceCorrection, SequenceMask
from turnwise.data.arrays import Flags, Ragged, SequenceBatch
from turnwise.errors import MismatchError
from turnwise.policy.divergence import LARGEST_LOG_RATIO
from turnwise.policy.learner.update import UpdateBatch


@dataclass(frozen=True)
class ImportanceWeights:
    """The importance weights of a batch, with the metrics about them."""

    per_token: Ragged
    """One row per sequence, with one weight per token; 0.0 at observation tokens."""
    mean: float
    """The mean over reply tokens, after truncation or masking."""
    maximum: float
    """The largest weight before truncation or masking."""
    cut_share: float
    """The share of reply tokens whose weight was truncated or masked, those of masked sequences included."""
    divergence: float
    """Schulman's estimate of KL(mu || p), p / mu - 1 - log (p / mu), in nats per reply token: before any bound."""


def importance_weights(
    sequences: SequenceBatch, learner_log_probabilities: Ragged, correction: ImportanceCorrection
) -> ImportanceWeights:
    """The weight of every token of a batch. The engine's log-probabilities are those in the sequences.

    `learner_log_probabilities` has one number per token of every sequence, in nats. Raises MismatchError when the mask
    leaves no reply token to train on.
    """
    (low, high), sequence_mask = correction.bounds, correction.sequence_mask
    log_weights = (learner_log_probabilities.values - sequences.log_probabilities)[sequences.mask]
    clamped = np.clip(log_weights, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    divergence = float((np.exp(clamped) - 1.0 - clamped).mean())
    rows = sequences.reply_rows(log_weights)
    within = np.ones(len(rows), dtype=bool) if sequence_mask is None else _within_bounds(rows, sequence_mask)
    if correction.level == "sequence":
        log_weights = np.repeat([row.sum() for row in rows], rows.lengths)
    if correction.kind == "none":
        log_weights = np.zeros(len(log_weights))
    weights = np.exp(np.clip(log_weights, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
    used = np.clip(weights, low, high)
    if correction.kind == "mask":
        used = np.where((weights >= low) & (weights <= high), weights, 0.0)
    bounded = np.where(np.repeat(within, rows.lengths), used, 0.0)
    if correction.over_mean and used.any():
        each = used if correction.level == "token" else used[rows.offsets[:-1][rows.lengths > 0]]
        bounded /= each.mean()
    cut_share = float(((used != weights) | ~np.repeat(within, rows.lengths)).mean())
    used = bounded
    if not used.any():
        raise MismatchError(
            f"the importance mask must leave a reply token to train on; it leaves none of {used.size} with "
            f"{_bounds(correction)}: engine and learner hold different weights; load the learner's policy into "
            "the engine before the rollout, or, with rollout.lag, take smaller steps (optimization.learning_rate)",
            "TW-engine-mismatch",
        )
    return ImportanceWeights(
        sequences.at_replies(used),
        float(used.mean()),
        float(weights.max()),
        cut_share,
        divergence,
    )


def _within_bounds(log_weights: Ragged, mask: SequenceMask) -> Flags:
    """Which sequences are within the bounds of a mask, [sequences]. `log_weights` has one row per sequence."""
    low, high = mask.bounds
    clamped = np.clip(log_weights.values, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    estimates = {"k1": clamped, "k2": clamped**2 / 2.0, "k3": np.exp(clamped) - 1.0 - clamped}[mask.of]
    if mask.of == "k1":
        low, high = math.log(low), math.log(high)
    within = np.ones(len(log_weights), dtype=bool)
    for index, row in enumerate(Ragged(estimates, log_weights.offsets)):
        if len(row):
            statistics = row if mask.over == "maximum" else np.array([row.mean() if mask.over == "mean" else row.sum()])
            within[index] = low <= statistics.min() and statistics.max() <= high
    return within


def _bounds(correction: ImportanceCorrection) -> str:
    """The bounds of a correction in words."""
    low, high = correction.bounds
    weights = "" if correction.kind == "none" else f"weights within {low:g} and {high:g}"
    if (mask := correction.sequence_mask) is None:
        return weights
    low, high = mask.bounds
    return f"{weights}{' and ' if weights else ''}the {mask.over} of {mask.of} within {low:g} and {high:g}"


def with_importance(
    batch: UpdateBatch, own: Ragged, correction: ImportanceCorrection, *, lags: bool
) -> tuple[UpdateBatch, dict[str, float]]:
    """The batch with importance weights and the learner's log-probabilities `own`, and the metrics about the weights.

    `lags`: whether an older policy than the learner's has sampled the batch.
    """
    weights = importance_weights(batch.sequences, own, correction)
    return replace(batch, proximal_log_probabilities=own, importance_weights=weights.per_token), {
        "importance_weight_mean": weights.mean,
        "importance_weight_maximum": weights.maximum,
        "importance_cut_share": weights.cut_share,
        **({"lag_kl": weights.divergence} if lags else {}),
    }
