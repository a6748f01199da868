"""Every selection and scheme of the batch, and an adapter, trains a small search agent."""

from __future__ import annotations

import pytest
from every_rule import BATCH, require_trains

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


# How a batch is trained on does not depend on the world that it is from.
@pytest.mark.parametrize("rule", BATCH)
def test_every_rule_trains(rule: str) -> None:
    require_trains("search", rule)
