"""Credit: pure functions from rewards to advantages.

`estimate(name, batch, **options)` is the interface of all estimators. A batch has one entry per trajectory; the result
is an array with one row per trajectory, and in it one advantage per turn or per reply token. `ESTIMATORS[name]` says
which, and what the batch must hold. `value_targets` returns the targets of a critic. Each estimator's file opens with
its equation, its paper, what differs, and when it is biased; `docs/credit-bias.md` has the biases in numbers.

`rollout_advantages` applies what is configured for a rollout: one estimator, or one each for thoughts and actions.
"""

from turnwise.credit.batch import CreditBatch, account, turn_means
from turnwise.credit.estimators import (
    ESTIMATORS,
    Estimator,
    Restriction,
    estimate,
    estimator_of,
    require_options,
    rollout_advantages,
    rules_of,
    value_targets,
)

__all__ = [
    "ESTIMATORS",
    "CreditBatch",
    "Estimator",
    "Restriction",
    "account",
    "estimate",
    "estimator_of",
    "require_options",
    "rollout_advantages",
    "rules_of",
    "turn_means",
    "value_targets",
]
