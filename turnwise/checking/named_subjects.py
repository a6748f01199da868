"""`turnwise check NAME`: what a name leads to, a world, a credit rule or a reward, and its check."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Literal

from turnwise.agent.added_rewards import BUILT_IN, RewardFunction
from turnwise.checking.added_rewards import check_reward
from turnwise.checking.credit_rules import check_rule
from turnwise.checking.report import CheckReport
from turnwise.credit import ESTIMATORS, Estimator
from turnwise.errors import ConfigurationError
from turnwise.plugins import CREDIT_RULE, REWARD, installed
from turnwise.world import installed_worlds

CheckedKind = Literal["world", "rule", "reward"]


def kind_of(name: str) -> CheckedKind:
    """What a name leads to. Of a function, the annotation of its first parameter tells: CreditBatch or Trajectory.

    A name that leads nowhere counts as a world's, whose check says what there is. Raises ConfigurationError for a
    function that does not tell.
    """
    if ":" not in name:
        if name in installed_worlds():
            return "world"
        if name in ESTIMATORS or name in installed(CREDIT_RULE):
            return "rule"
        return "reward" if name in BUILT_IN or name in installed(REWARD) else "world"
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, SyntaxError, ValueError):
        return "world"
    if isinstance(found, Estimator):
        return "rule"
    if isinstance(found, RewardFunction):
        return "reward"
    return _kind_of_function(name, found) if inspect.isfunction(found) else "world"


def _kind_of_function(name: str, function: Any) -> CheckedKind:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    annotation = "" if first is None else str(first.annotation)
    if "CreditBatch" in annotation:
        return "rule"
    if "Trajectory" in annotation:
        return "reward"
    raise ConfigurationError(
        f"a function must tell what it is, by the annotation of its first parameter: CreditBatch for a credit rule, "
        f"Trajectory for a reward; {name} has {annotation or 'none'}: annotate it, or give --as"
    )


def check_named(kind: Literal["rule", "reward"], name: str, options: Mapping[str, Any]) -> CheckReport:
    """The check of a credit rule or a reward with these options. Raises ConfigurationError or CreditError."""
    return check_rule(name, options) if kind == "rule" else check_reward(name, options)
