"""Who gets how much: rewards to advantages, as pure functions.

`estimate(name, batch, **options)` is the whole interface: a batch has one entry per trajectory, the result is a list
per trajectory of one advantage per turn. Each estimator has a file that opens with its equation, its paper and what
differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from turnwise.credit.batch import CreditBatch
from turnwise.credit.group_relative import grpo
from turnwise.credit.turn_level import mt_grpo
from turnwise.errors import CreditError

ESTIMATORS: Mapping[str, Callable[..., list[list[float]]]] = {"grpo": grpo, "mt-grpo": mt_grpo}
"""The advantage estimators by name."""

__all__ = ["ESTIMATORS", "CreditBatch", "estimate", "require_options"]


def estimate(name: str, batch: CreditBatch, **options: Any) -> list[list[float]]:
    """The advantages of a batch by the named estimator. Raises CreditError for an unknown name or option."""
    require_options(name, options)
    return ESTIMATORS[name](batch, **options)


def require_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise CreditError unless `name` is an estimator and `options` are options that it has, with values it accepts."""
    if name not in ESTIMATORS:
        raise CreditError(f"credit.estimator must be one of {', '.join(sorted(ESTIMATORS))}; found {name!r}")
    known = [option for option in inspect.signature(ESTIMATORS[name]).parameters if option != "batch"]
    for option in options:
        if option not in known:
            raise CreditError(f"the options of {name!r} are {', '.join(known)}; found {option!r}")
    ESTIMATORS[name](CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[0.0, 0.0]), **options)
