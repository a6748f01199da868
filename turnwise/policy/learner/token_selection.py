"""Which reply tokens of a batch the policy loss counts, decided once per update: before its first step.

    c_t = (A_t - mean of A) (log p(t) - mean of log p)        over the batch's n reply tokens

    clip-cov      of the tokens with low < c_t < high, max(1, share n) are drawn, and their loss is 0
    kl-cov        to the loss of the max(1, share n) tokens with the largest c_t, coefficient |log r_t| is added
    top-entropy   the loss of the tokens whose entropy is below the quantile 1 - share of all is 0

p is the policy that the ratio r is taken to: the engine's, or the learner's own with a correction. A token that is
likely and better than the others (large c) is where a policy gradient lowers the entropy most; the first two hold it
there. The third trains on the tokens where the policy decides something. What is left out counts in the aggregation
nevertheless; the penalty for divergence from a reference and the entropy bonus are those of all tokens.

Papers: Clip-Cov and KL-Cov, the entropy mechanism (Cui et al., arXiv 2505.22617), share 2e-4, low 1, high 5 and
coefficient 1 as in their release, whose loss is `clipped` for the first and `importance-sampling` for the second; here
each goes with any loss. Top entropy, beyond the 80/20 rule (Wang et al., arXiv 2506.01939), share 0.2.

What differs: their code chooses anew in each mini-batch of each step, with the probabilities of that step, and Clip-Cov
leaves out tokens that are clipped already; TRL's quantile is that of the sequences of one step. Here it is the whole
batch's, so that no cut into mini-batches or micro-batches changes the choice. Before the first step the ratio is 1, and
nothing is clipped. TRL's entropy bonus is that of the chosen tokens alone. Draws are from the update's seed.

Bias: whatever is left out by what was sampled biases the gradient; that is its purpose. KL-Cov leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from turnwise.config.optimization import TokenSelection
from turnwise.config.options import read_options
from turnwise.config.quantities import Number, Positive
from turnwise.data.arrays import Numbers
from turnwise.errors import ConfigurationError
from turnwise.seeding import generator
from turnwise.suggestions import meant

ShareOfTokens = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]
NEEDS_ENTROPY = ("top-entropy",)
"""The rules that need the entropies of the policy: one more forward pass over the batch."""
ADDS_TO_LOSS = ("kl-cov",)
"""The rules by which a token without an advantage has a gradient."""


@dataclass(frozen=True)
class ReplyTokenInputs:
    """What the rules read, one number per reply token of the batch, [replies]."""

    advantages: Numbers
    log_probabilities: Numbers
    """Of the policy that the ratio is taken to, in nats."""
    entropies: Numbers | None
    """Of the policy before its first step, in nats; for the rules of `NEEDS_ENTROPY`."""


@dataclass(frozen=True)
class Selected:
    """What becomes of the loss of each reply token, [replies]."""

    factors: Numbers
    """The policy loss is multiplied by it: 1 or 0."""
    pulls: Numbers | None = None
    """The coefficient of |log r|, which is added to the loss; None: of no token."""


def clip_cov(
    tokens: ReplyTokenInputs, seed: int, *, share: ShareOfTokens = 2e-4, low: Number = 1.0, high: Number = 5.0
) -> Selected:
    """Clip-Cov: the loss of a few tokens of large covariance, drawn by `seed`, is 0."""
    covariances = covariance_terms(tokens)
    candidates = np.flatnonzero((covariances > low) & (covariances < high))
    indices = generator(seed, "clip-cov").permutation(candidates)[: _number(share, covariances)]
    factors = np.ones(len(covariances))
    factors[indices] = 0.0
    return Selected(factors)


def kl_cov(
    tokens: ReplyTokenInputs, seed: int, *, share: ShareOfTokens = 2e-4, coefficient: Positive = 1.0
) -> Selected:
    """KL-Cov: the tokens of the largest covariance are held where they are, by |log r|."""
    covariances = covariance_terms(tokens)
    pulls = np.zeros(len(covariances))
    pulls[np.argsort(-covariances, kind="stable")[: _number(share, covariances)]] = coefficient
    return Selected(np.ones(len(covariances)), pulls)


def top_entropy(tokens: ReplyTokenInputs, seed: int, *, share: ShareOfTokens = 0.2) -> Selected:
    """The loss of the tokens of lower entropy is 0; `share` of all have one. Equal entropies are kept together."""
    assert tokens.entropies is not None, "the learner computes them for this rule"
    return Selected((tokens.entropies >= np.quantile(tokens.entropies, 1.0 - share)).astype(np.float64))


RULES: Mapping[str, Callable[..., Selected]] = {"clip-cov": clip_cov, "kl-cov": kl_cov, "top-entropy": top_entropy}
"""The rules by name; options are keyword arguments. Only `clip-cov` reads the seed."""


def covariance_terms(tokens: ReplyTokenInputs) -> Numbers:
    """c_t of each reply token, [replies]: their mean is the covariance of advantage and log-probability."""
    advantages, log_probabilities = tokens.advantages, tokens.log_probabilities
    terms: Numbers = (advantages - advantages.mean()) * (log_probabilities - log_probabilities.mean())
    return terms


def require_token_selection(selection: TokenSelection | None) -> None:
    """Raise ConfigurationError for a rule that is unknown, or has no such option."""
    if selection is None:
        return
    if selection.rule not in RULES:
        raise ConfigurationError(
            f"optimization.token_selection.rule must be one of {', '.join(RULES)}; found {selection.rule!r}"
            f"{meant(selection.rule, RULES)}",
            "TW-unknown-rule",
        )
    try:
        options = read_options(selection.rule, RULES[selection.rule], selection.options)
    except ConfigurationError as error:
        raise ConfigurationError(f"optimization.token_selection.options: {error}") from None
    if selection.rule == "clip-cov" and options["low"] >= options["high"]:
        raise ConfigurationError(
            "optimization.token_selection.options: low must be below high, or no token is between them; found "
            f"low {options['low']:g} and high {options['high']:g}",
            "TW-reversed-bounds",
        )


def _number(share: float, tokens: Numbers) -> int:
    return max(1, int(share * len(tokens)))
