"""What a rule of one's own declares, and whether it answers at all, is known before compute."""

from __future__ import annotations

import pytest

from turnwise.config.schema import Credit
from turnwise.credit import ESTIMATORS, CreditBatch, Estimator
from turnwise.credit.declaration import require_answer, require_declaration
from turnwise.credit.requirements import CreditInputs, require_credit
from turnwise.data.arrays import Ragged
from turnwise.errors import ConfigurationError

HERE = __name__
INPUTS = CreditInputs("search", True, 4, 2, False, False)


def of_turns(batch: CreditBatch) -> Ragged:
    """Its outcome at every turn."""
    return batch.on_every_turn(batch.totals("outcome"))


def of_tokens(batch: CreditBatch) -> Ragged:
    """The critic's values, next to which nothing is whitened."""
    assert batch.values is not None
    return Ragged(1.0 - batch.values.values, batch.values.offsets)


def of_lengths(batch: CreditBatch) -> Ragged:
    """Reads the replies' lengths."""
    return Ragged(1.0 * batch.reply_lengths.values, batch.reply_lengths.offsets)


def of_nothing(batch: CreditBatch) -> list[list[float]]:
    return []


with_lengths = Estimator(of_lengths, "turn", needs=("reply_lengths",))
with_critic = Estimator(of_tokens, "token", needs=("reply_lengths", "values"))


def test_every_rule_of_the_package_declares_what_can_be() -> None:
    for name, estimator in ESTIMATORS.items():
        require_declaration(name, estimator)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Estimator(of_turns, "turn", needs=("value",)), "TW-rule-declaration"),
        (Estimator(of_turns, "word"), "'word'.*TW-rule-declaration"),  # type: ignore[arg-type]
        (Estimator(of_turns, "token"), "TW-rule-declaration"),
        (Estimator(of_turns, "turn", distributions=("no-such-package",)), "no-such-package.*TW-missing-package"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(estimator: Estimator, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        require_declaration("x", estimator)


@pytest.mark.parametrize("rule", ["of_turns", "with_lengths", "with_critic"])
def test_a_rule_that_answers_with_what_it_declares_is_taken(rule: str) -> None:
    require_answer("credit.estimator", f"{HERE}:{rule}", {})
    require_credit(Credit(estimator=f"{HERE}:{rule}", options={}), INPUTS)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("of_lengths", rf"has no attribute 'values' \({__file__}:\d+\). `turnwise check {HERE}:of_lengths`"),
        ("of_nothing", r"\b1\b.*\b2\b.*TW-failing-rule"),
    ],
)
def test_a_rule_that_would_stop_at_its_first_batch_is_refused_before_compute(rule: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        require_credit(Credit(estimator=f"{HERE}:{rule}", options={}), INPUTS)
