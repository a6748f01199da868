"""The objective that an optimizer step minimises, over the reply tokens of one micro-batch.

    sum over reply tokens t of  weight_t [ w_t m_t L_t + b_t |log r_t| + c k_t - e H_t ]

L_t: the policy loss (`turnwise.policy.learner.losses`), w_t: the importance weight of the engine's mismatch
(`turnwise.policy.learner.importance`), m_t, 0 or 1, and b_t: the selection of tokens
(`turnwise.policy.learner.token_selection`) and the bound on off-policy sequences (below), k_t: the estimate of the
divergence from a reference policy (`turnwise.policy.divergence`), H_t: the entropy of the distribution that the token
is drawn from, weight_t: the token's weight in the aggregation over the whole mini-batch
(`turnwise.policy.learner.update`); c and e: the coefficients of the penalty and of the entropy bonus. The sum over
micro-batches is the mini-batch's objective, however it is cut. A term that is not used is not computed. TRL's entropy
bonus is a mean over all tokens, whatever the aggregation; here and in verl it is weighted as the loss.

With `off_policy_bound` delta m_t is also 0 where A_t < 0 and the mean over the sequence's reply tokens of
log mu - log pi is above delta: what the policy has moved away from is not pushed further on stale evidence. mu is the
engine, pi the policy at this step (DeepSeek-V3.2, arXiv 2512.02556; TRL's `off_policy_mask_threshold`, whose advantage
is the sequence's). Bias: what is left out is bad alone, so that the policy is less of a pessimist than its rewards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnwise.data.arrays import Numbers, Ragged
from turnwise.policy.divergence import LARGEST_LOG_RATIO, divergence
from turnwise.policy.learner.losses import LOSSES, TokenLoss
from turnwise.policy.learner.settings import UpdateSettings
from turnwise.policy.learner.token_loss import sequence_mean
from turnwise.policy.learner.update import UpdateBatch
from turnwise.policy.metric_sums import UpdateTally
from turnwise.policy.scoring import MicroBatch, at_reply_tokens


@dataclass(frozen=True)
class ReplyTokens:
    """The inputs of the objective other than the policy's outputs, at a micro-batch's reply tokens; all [replies]."""

    engine: torch.Tensor
    """Log-probabilities of the sampled tokens in the engine, in nats."""
    behaviour: torch.Tensor
    """Log-probabilities that the ratio is taken to: the engine's, or the learner's own before its first step."""
    advantages: torch.Tensor
    weights: torch.Tensor
    """The weight of each token in the aggregation."""
    sequence: torch.Tensor
    """Index of the sequence within the micro-batch."""
    reference: torch.Tensor | None
    """Log-probabilities in the reference policy, in nats; None where the batch has none."""
    importance: torch.Tensor | None
    """Importance weights; None without a correction of the engine's mismatch."""
    factors: torch.Tensor | None = None
    """Factors of the policy loss, 0 or 1; None without a selection of tokens."""
    pulls: torch.Tensor | None = None
    """Coefficients of |log r|; None where no token has one."""

    @classmethod
    def of(cls, batch: UpdateBatch, weights: Numbers, micro_batch: MicroBatch, dtype: torch.dtype) -> ReplyTokens:
        """Collect the inputs of a micro-batch of `batch`; `weights` has one number per sequence of the batch."""

        def pick(values: Ragged | Numbers) -> torch.Tensor:
            return at_reply_tokens(values, micro_batch).to(dtype)

        engine = pick(batch.sequences.log_probabilities)
        proximal, reference, importance, factors, pulls = (
            None if rows is None else pick(rows)
            for rows in (
                batch.proximal_log_probabilities,
                batch.reference_log_probabilities,
                batch.importance_weights,
                batch.loss_factors,
                batch.ratio_pulls,
            )
        )
        of_sequence = torch.from_numpy(weights[list(micro_batch.members)]).to(dtype)
        return cls(
            engine=engine,
            behaviour=engine if proximal is None else proximal,
            advantages=pick(batch.advantages),
            weights=of_sequence.to(engine.device)[micro_batch.rows],
            sequence=micro_batch.rows,
            reference=reference,
            importance=importance,
            factors=factors,
            pulls=pulls,
        )


def objective(
    log_probabilities: torch.Tensor, entropy: torch.Tensor, tokens: ReplyTokens, settings: UpdateSettings
) -> tuple[torch.Tensor, UpdateTally]:
    """The micro-batch's part of the objective, and the sums for its metrics.

    `log_probabilities` and `entropy` are the policy's at the reply tokens, [replies], in nats, at the sampling
    temperature; `entropy` needs a gradient only where it has a coefficient.
    """
    everywhere = torch.ones_like(tokens.engine, dtype=torch.bool)
    policy = LOSSES[settings.loss](
        log_probabilities, tokens.behaviour, tokens.advantages, everywhere, tokens.sequence, **settings.loss_arguments
    )
    further: dict[str, float] = {}
    policy_loss = policy.loss if tokens.importance is None else policy.loss * tokens.importance
    if tokens.factors is not None:
        policy_loss = policy_loss * tokens.factors
    if tokens.pulls is not None:
        policy_loss = policy_loss + tokens.pulls * (log_probabilities - tokens.behaviour).abs()
    if settings.off_policy_bound is not None:
        dropped = off_policy(log_probabilities.detach(), tokens, settings.off_policy_bound)
        policy_loss = policy_loss.masked_fill(dropped, 0.0)
        further["off_policy_fraction"] = dropped.sum().item()
    total = policy_loss
    if settings.dual_clip is not None:
        further["dual_clip_fraction"] = policy.dual_clipped.sum().item()
    if settings.penalty_in_loss is not None:
        assert tokens.reference is not None, "require_inputs_of has seen to it"
        to_reference = divergence(log_probabilities - tokens.reference, settings.penalty_in_loss)
        if settings.penalty_in_loss.reweighted:
            log_ratio = (log_probabilities - tokens.behaviour).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
            to_reference = to_reference * log_ratio.exp()
        total = total + settings.penalty_in_loss.coefficient * to_reference
        further["kl_reference"] = to_reference.sum().item()
    if settings.entropy_coefficient:
        total = total - settings.entropy_coefficient * entropy
    descended = (total * tokens.weights).sum()
    of_terms = UpdateTally(loss=policy_loss.sum().item(), objective=descended.item(), further=further)
    return descended, of_terms + _of_policy(policy, log_probabilities, entropy, tokens)


def off_policy(log_probabilities: torch.Tensor, tokens: ReplyTokens, bound: float) -> torch.Tensor:
    """Whether each token has a negative advantage in a sequence that the policy has moved away from, [replies]."""
    everywhere = torch.ones_like(tokens.engine, dtype=torch.bool)
    away = sequence_mean(tokens.engine - log_probabilities, everywhere, tokens.sequence)
    return (tokens.advantages < 0) & (away > bound)


def _of_policy(
    policy: TokenLoss, log_probabilities: torch.Tensor, entropy: torch.Tensor, tokens: ReplyTokens
) -> UpdateTally:
    """The sums for the policy's metrics, which are reported whatever terms the objective has."""
    mismatch = (log_probabilities.detach() - tokens.engine).abs()
    return UpdateTally(
        tokens=len(tokens.engine),
        ratio=policy.ratio.sum().item(),
        clipped_low=policy.clipped_low.sum().item(),
        clipped_high=policy.clipped_high.sum().item(),
        divergence=policy.divergence.sum().item(),
        entropy=entropy.sum().item(),
        mismatch=mismatch.sum().item(),
        mismatch_maximum=mismatch.max().item() if len(tokens.engine) else 0.0,
    )
