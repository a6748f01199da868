"""Credit rules and selection rules of one's own, next to those of the package."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import pytest
from credit_samples import SEARCHES, WITH_CRITIC
from pydantic import Field

from turnwise.config.schema import Credit
from turnwise.credit import CreditBatch, Estimator, estimate, estimator_of, rollout_advantages, value_targets
from turnwise.credit.estimators import Restriction
from turnwise.credit.requirements import CreditInputs, needs_critic, require_credit
from turnwise.credit.selection import require_selection, select
from turnwise.data.arrays import Ragged
from turnwise.errors import ConfigurationError, ContractError, CreditError

HERE = __name__
INPUTS = CreditInputs("search", True, 4, 4, False, False)
Factor = Annotated[float, Field(gt=0.0)]


def centred(batch: CreditBatch, *, factor: Factor = 1.0) -> list[list[float]]:
    """The outcome minus the group's mean, times a factor: as nested lists, which are made an array."""
    mean = sum(batch.outcome) / len(batch)
    return [[factor * (outcome - mean)] * turns for outcome, turns in zip(batch.outcome, batch.turns, strict=True)]


def of_a_kind(batch: CreditBatch, *, kind: Literal["short", "any"] = "short") -> list[list[float]]:
    return centred(batch)


def short(batch: CreditBatch) -> list[list[float]]:
    """One number too few."""
    return [[0.0] for _ in range(len(batch))]


def not_a_number(batch: CreditBatch) -> Ragged:
    return batch.on_every_turn(batch.totals("outcome") * float("nan"))


missing = Estimator(centred, "turn", distributions=("no-such-package",))
with_critic = Estimator(centred, "token", needs=("reply_lengths", "values"))
with_short_targets = Estimator(centred, "token", needs=("reply_lengths", "values"), targets=short)
of_one_turn = Estimator(of_a_kind, "turn", restrictions=(Restriction("kind", "short", instead="any", most_turns=1),))
nonsense = 7


ANSWER: Any = None


def fixed(*_: Any, **__: Any) -> Any:
    return ANSWER


def first_two(deviations: dict[int, float], seed: int, *, count: Annotated[int, Field(ge=1)] = 2) -> list[int]:
    """The groups of the largest number."""
    return sorted(deviations, reverse=True)[:count]


def unknown_group(deviations: dict[int, float], seed: int) -> list[int]:
    return [99]


def test_a_plain_function_is_a_rule_of_turns_that_compares_within_groups() -> None:
    found = estimate(f"{HERE}:centred", SEARCHES, factor=2.0)
    assert found.tolist() == [[1.5, 1.5], [-1.5, -1.5], [1.5, 1.5], [-1.5]]
    assert estimator_of(f"{HERE}:centred").grouped and not needs_critic(f"{HERE}:centred")
    credit = Credit(estimator=f"{HERE}:centred", options={"factor": 2.0})
    assert rollout_advantages([0, 1, 2, 3], SEARCHES, credit).turns.tolist() == found.tolist()


def test_a_declared_rule_is_held_to_what_it_declares_before_compute() -> None:
    assert needs_critic(f"{HERE}:with_critic")
    with pytest.raises(ConfigurationError, match=r"no-such-package.*TW-missing-package"):
        require_credit(Credit(estimator=f"{HERE}:missing", options={}), INPUTS)
    alone = CreditInputs("search", True, 1, 4, False, False)
    with pytest.raises(ConfigurationError, match="TW-small-group"):
        require_credit(Credit(estimator=f"{HERE}:centred", options={}), alone)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (f"{HERE}:centred", {"facter": 1.0}, "did you mean 'factor'"),
        (f"{HERE}:centred", {"factor": -1.0}, "factor must be above 0"),
        (f"{HERE}:nonsense", {}, "must name an Estimator of turnwise.credit, or a function"),
        (f"{HERE}:centered", {}, "has no attribute 'centered'"),
    ],
)
def test_what_a_rule_does_not_take_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        require_credit(Credit(estimator=name, options=options), INPUTS)
    assert said in str(found.value) and "credit." in str(found.value)


def test_advantages_of_another_shape_or_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(CreditError, match=r"\b2\b.*\b1\b.*TW-advantage-shape"):
        estimate(f"{HERE}:short", SEARCHES)
    with pytest.raises(CreditError, match="TW-not-finite"):
        estimate(f"{HERE}:not_a_number", SEARCHES)


def test_targets_of_another_shape_are_refused() -> None:
    with pytest.raises(CreditError, match=r"target per token: \[3\]; found \[1\].*TW-advantage-shape"):
        value_targets(f"{HERE}:with_short_targets", WITH_CRITIC)


def test_a_restriction_holds_for_the_default_of_its_option_too() -> None:
    with pytest.raises(ConfigurationError, match="TW-too-many-turns"):
        require_credit(Credit(estimator=f"{HERE}:of_one_turn", options={}), INPUTS)
    require_credit(Credit(estimator=f"{HERE}:of_one_turn", options={"kind": "any"}), INPUTS)


@pytest.mark.parametrize("answer", [None, b"raw", "text", [None] * 4, [["one"]] * 4, [0.5] * 4, 1j])
def test_an_answer_of_another_kind_is_refused_with_what_it_is(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(sys.modules[HERE], "ANSWER", answer)
    with pytest.raises(CreditError, match="TW-advantage-shape"):
        estimate(f"{HERE}:fixed", SEARCHES)
    with pytest.raises(ContractError, match=r"\b4\b.*TW-answer-type"):
        select(f"{HERE}:fixed", {4: 0.1}, seed=1)


def test_a_selection_of_ones_own_keeps_groups_in_the_order_of_the_batch() -> None:
    deviations = {4: 0.1, 9: 0.0, 7: 0.3}
    assert select(f"{HERE}:first_two", deviations, seed=1).kept == (9, 7)
    assert select(f"{HERE}:first_two", deviations, seed=1, count=1).dropped == (4, 7)
    with pytest.raises(ValueError, match=r"\b99\b.*TW-answer-type"):
        select(f"{HERE}:unknown_group", deviations, seed=1)
    with pytest.raises(ConfigurationError, match="TW-unknown-name"):
        require_selection("unertainty", {})
