"""Every loss, with its aggregations, penalties and corrections, trains a small search agent."""

from __future__ import annotations

import pytest
from every_rule import LOSS, require_trains

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


# How a batch is trained on does not depend on the world that it is from.
@pytest.mark.parametrize("rule", LOSS)
def test_every_rule_trains(rule: str) -> None:
    require_trains("search", rule)
