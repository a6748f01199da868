"""`turnwise check NAME`: what a name leads to, a world, a credit rule or a reward."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Literal

from turnwise.agent.added_rewards import BUILT_IN, RewardFunction
from turnwise.credit import ESTIMATORS, Estimator
from turnwise.errors import ConfigurationError
from turnwise.plugins import CREDIT_RULE, KINDS, REWARD, installed
from turnwise.suggestions import meant
from turnwise.world import installed_worlds

CheckedKind = Literal["world", "rule", "reward"]


def kind_of(name: str) -> CheckedKind:
    """What a name leads to. Of a function, the annotation of its first parameter tells: CreditBatch or Trajectory.

    A `module:object` that cannot be imported counts as a world, whose check says why. Raises ConfigurationError for a
    function that does not tell, and for a word that is no name of a world, a credit rule or a reward.
    """
    if ":" not in name:
        return _classify_word(name)
    module, _, attribute = name.partition(":")
    try:
        target = getattr(importlib.import_module(module), attribute, None)
    except Exception:  # the check of the world raises it again, and says where it comes from
        return "world"
    if isinstance(target, Estimator):
        return "rule"
    if isinstance(target, RewardFunction):
        return "reward"
    return _classify_function(name, target) if inspect.isfunction(target) else "world"


def _classify_word(name: str) -> CheckedKind:
    words: dict[CheckedKind, tuple[str, ...]] = {
        "world": tuple(installed_worlds()),
        "rule": (*ESTIMATORS, *installed(CREDIT_RULE)),
        "reward": (*BUILT_IN, *installed(REWARD)),
    }
    for kind, names in words.items():
        if name in names:
            return kind
    others = [f"a {kind.title}, which has no check" for kind in KINDS if name in installed(kind)]
    raise ConfigurationError(
        "what is checked must be 'module:object', "
        + ", ".join(f"a {kind} ({', '.join(names)})" for kind, names in words.items())
        + f"; found {name!r}"
        + (f", {others[0]}" if others else meant(name, [word for names in words.values() for word in names])),
        "TW-unknown-subject",
    )


def _classify_function(name: str, function: Any) -> CheckedKind:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    annotation = "" if first is None or first.annotation is first.empty else str(first.annotation)
    if "CreditBatch" in annotation:
        return "rule"
    if "Trajectory" in annotation:
        return "reward"
    raise ConfigurationError(
        f"a function must tell what it is, by the annotation of its first parameter: CreditBatch for a credit rule, "
        f"Trajectory for a reward; {name} has {annotation or 'none'}: annotate it, or give --as",
        "TW-unannotated-function",
    )
