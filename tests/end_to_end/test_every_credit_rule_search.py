"""Every way to assign credit trains a small search agent."""

from __future__ import annotations

import pytest
from every_rule import CREDIT, require_trains, require_warm_up

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


@pytest.mark.parametrize("rule", CREDIT)
def test_every_rule_trains(rule: str) -> None:
    require_trains("search", rule)


def test_while_the_critic_warms_up_the_policy_stays() -> None:
    require_warm_up("search")
