"""Importance weights that correct for the mismatch between engine and learner, and for a lag of the sampling policy.

Engine and learner hold the same weights and compute slightly different probabilities (kernels, precision). With
`rollout.lag` the engine's weights are older than the learner's, too. With log p, recomputed by the learner for the
sampled tokens before the first optimizer step, and log mu, the engine's:

    token       w_t = exp(log p(t) - log mu(t))
    sequence    w   = exp(sum over the sequence's reply tokens of log p(t) - log mu(t)), for each of its tokens

    truncate    min(w, high)                        biased, with bounded variance
    mask        w where low <= w <= high, else 0    tokens on which the two disagree are not trained on

The policy loss of a token is multiplied by its weight, a constant. The ratio of the loss is then taken to p, the
*proximal* policy, instead of mu: w corrects for the difference between engine and learner, while the ratio and its clip
follow the learner's own steps (Hilton et al. 2021, arXiv 2110.00641). Without a correction the ratio is taken to mu and
does both. With a lag w = (p / q) (q / mu), q being the learner with the weights that sampled: the first factor is the
lag's, the second the mismatch's, and the bounds apply to their product. The penalty for divergence from a reference and
the entropy bonus are not weighted.

Papers: truncated importance sampling for engines, Yao et al. 2025 ("Your efficient RL framework secretly brings you
off-policy RL training"), high = 2, per token; IcePop (Ring-1T, arXiv 2510.18855), masks per token outside [0.5, 5].
What differs: both can be taken per sequence. A sequence is what the learner computes at once: where a context policy
has cut a trajectory into segments, or `optimization.sample` into turns, each of them has a weight of its own. A log
weight is clamped to [-20, 20], as the losses clamp theirs, so that the weight stays finite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from turnwise.config.optimization import ImportanceCorrection
from turnwise.data.arrays import Ragged, SequenceBatch
from turnwise.errors import MismatchError
from turnwise.policy.divergence import LARGEST_LOG_RATIO
from turnwise.policy.learner.update import UpdateBatch


@dataclass(frozen=True)
class ImportanceWeights:
    """The importance weights of a batch, with the metrics about them."""

    of_token: Ragged
    """One row per sequence, with one weight per token; 0.0 at observation tokens."""
    mean: float
    """The mean over reply tokens, after truncation or masking."""
    maximum: float
    """The largest weight before truncation or masking."""
    cut_share: float
    """The share of reply tokens whose weight was truncated or masked."""
    divergence: float
    """Schulman's estimate of KL(mu || p), p / mu - 1 - log (p / mu), in nats per reply token: before any bound."""


def importance_weights(
    sequences: SequenceBatch, learner_log_probabilities: Ragged, correction: ImportanceCorrection
) -> ImportanceWeights:
    """The weight of every token of a batch. The engine's log-probabilities are those in the sequences.

    `learner_log_probabilities` has one number per token of every sequence, in nats. Raises MismatchError when the mask
    leaves no reply token to train on.
    """
    low, high = correction.bounds
    log_weights = (learner_log_probabilities.values - sequences.log_probabilities)[sequences.mask]
    clamped = np.clip(log_weights, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    divergence = float((np.exp(clamped) - 1.0 - clamped).mean())
    if correction.level == "sequence":
        rows = sequences.reply_rows(log_weights)
        log_weights = np.repeat([row.sum() for row in rows], rows.lengths)
    weights = np.exp(np.clip(log_weights, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
    used = np.minimum(weights, high)
    if correction.kind == "mask":
        used = np.where((weights >= low) & (weights <= high), weights, 0.0)
    if not used.any():
        raise MismatchError(
            f"the importance mask must leave a reply token to train on; it leaves none of {used.size} with weights "
            f"within {low:g} and {high:g}: engine and learner hold different weights; load the learner's policy into "
            "the engine before the rollout, or, with rollout.lag, take smaller steps (optimization.learning_rate)"
        )
    return ImportanceWeights(
        sequences.at_replies(used),
        float(used.mean()),
        float(weights.max()),
        float((weights != used).mean()),
        divergence,
    )


def with_importance(
    batch: UpdateBatch, own: Ragged, correction: ImportanceCorrection, *, lags: bool
) -> tuple[UpdateBatch, dict[str, float]]:
    """The batch with importance weights and the learner's log-probabilities `own`, and the metrics about the weights.

    `lags`: whether an older policy than the learner's has sampled the batch.
    """
    weights = importance_weights(batch.sequences, own, correction)
    return replace(batch, proximal_log_probabilities=own, importance_weights=weights.of_token), {
        "importance_weight_mean": weights.mean,
        "importance_weight_maximum": weights.maximum,
        "importance_cut_share": weights.cut_share,
        **({"lag_kl": weights.divergence} if lags else {}),
    }
