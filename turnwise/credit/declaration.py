"""What a credit rule declares in its `Estimator`, held against what rules can have, and tried before any compute."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from turnwise.credit import CreditBatch, Estimator, estimate, estimator_of, value_targets
from turnwise.credit.batch import NEEDS
from turnwise.data.arrays import Ragged
from turnwise.errors import ConfigurationError, raised_at
from turnwise.plugins import require_installed

TURNS = (1, 2, 2, 1)
"""The turns of the trajectories of the batch on which a rule is tried: two groups of two. Every rule allows two."""


def require_declaration(title: str, estimator: Estimator) -> None:
    """Raise ConfigurationError for a rule that declares what cannot be. `title` names it in the message."""
    if unknown := [need for need in estimator.needs if need not in NEEDS]:
        raise ConfigurationError(
            f"{title} may need {', '.join(NEEDS)}; it declares {', '.join(unknown)}", "TW-rule-declaration"
        )
    if estimator.level not in ("turn", "token"):
        raise ConfigurationError(
            f"{title} must have the level turn or token; it declares {estimator.level!r}", "TW-rule-declaration"
        )
    if estimator.level == "token" and "reply_lengths" not in estimator.needs:
        raise ConfigurationError(
            f"{title} credits tokens, and must declare that it needs reply_lengths; it does not", "TW-rule-declaration"
        )
    require_installed(title, estimator.distributions)


def require_answer(key: str, name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for a plug-in without advantages for a small batch that has only what it declares.

    Otherwise its first batch would stop the run, after the warm start and a rollout.
    """
    batch = _small_batch().with_only(estimator_of(name).needs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimate(name, batch, **options)
            if "values" in estimator_of(name).needs:
                value_targets(name, batch, **options)
    except Exception as error:
        place = raised_at(error)
        raise ConfigurationError(
            f"{key} {name} must give advantages for a small batch that has what it declares; it raised "
            f"{type(error).__name__}: {error}{f' ({place})' if place else ''}. `turnwise check {name}` tells more",
            "TW-failing-rule",
        ) from error


def _small_batch() -> CreditBatch:
    """Two groups of two trajectories of one and two turns, with three tokens a reply and all that a rule may need."""
    tokens = [[0.1 * (place + 1) for place in range(3 * turns)] for turns in TURNS]
    return CreditBatch(
        group=[0, 0, 1, 1],
        turn_rewards=Ragged.of([0.1 * (index + turn) for turn in range(turns)] for index, turns in enumerate(TURNS)),
        outcome=[1.0, 0.0, 0.25, 0.5],
        reply_lengths=Ragged.of(([3] * turns for turns in TURNS), np.int64),
        values=Ragged.of(tokens),
        anchors=[["start", "end"][:turns] for turns in TURNS],
        truncated=[False, True, False, False],
        bootstrap=[0.5] * len(TURNS),
        named_rewards=Ragged.of([[1.0, 0.0]] * len(TURNS)),
        reward_weights=Ragged.of([[1.0, 0.5]] * len(TURNS)),
        greedy_rewards=Ragged.of([[0.1, 0.5]] * len(TURNS)),
        score_norms=Ragged.of(tokens),
        trees=[0] * len(TURNS),
        nodes=Ragged.of(([10 * index, 10 * index + 1][:turns] for index, turns in enumerate(TURNS)), np.int64),
        surprisals=Ragged.of([0.5, 1.0][:turns] for turns in TURNS),
        hindsight=Ragged.of(tokens),
        answer_scores=Ragged.of([-1.0, -0.5][:turns] for turns in TURNS),
        start_answer_scores=Ragged.of([-1.5, -0.5][:turns] for turns in TURNS),
    )
