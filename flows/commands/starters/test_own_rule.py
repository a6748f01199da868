"""The credit rule of own_rule.py: an example worked by hand, and the contract. Run by `pytest test_own_rule.py`."""

from __future__ import annotations

import turnwise as tw


def test_an_example_worked_by_hand() -> None:
    # One group of two trajectories, of two turns and of one. Their rewards are 0.5 + 1.0 and 0.5, the mean is 1.0.
    batch = tw.CreditBatch(group=[0, 0], turn_rewards=tw.Ragged.of([[0.5, 0.0], [0.0]]), outcome=[1.0, 0.5])
    assert tw.estimate("own_rule:own_rule", batch, scale=2.0).tolist() == [[1.0, 1.0], [-1.0]]


def test_it_keeps_the_contract_of_a_credit_rule() -> None:
    report = tw.check_rule("own_rule:own_rule")
    assert report.passed, "\n".join(report.lines())
