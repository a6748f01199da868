"""ReMax, by hand."""

import pytest
from credit_samples import close

from turnwise.config.schema import Credit
from turnwise.credit import CreditBatch, estimate
from turnwise.credit.requirements import require_greedy
from turnwise.errors import ConfigurationError

BATCH = CreditBatch(
    group=[0, 0, 1],
    turn_rewards=[[0.5, 0.25], [0.0], [1.0]],
    outcome=[1.0, 0.0, 2.0],
    greedy_rewards=[[0.25, 1.0], [0.25, 1.0], [0.0, 4.0]],
)


def test_the_return_to_go_is_compared_with_the_greedy_return() -> None:
    # 0.5 + 0.25 + 1 - 1.25, 0.25 + 1 - 1.25; 0 - 1.25; 1 + 2 - 4
    assert close(estimate("remax", BATCH), [[0.5, 0.0], [-1.25], [-1.0]])
    assert close(estimate("remax", BATCH, rewards="merged"), [[0.5, 0.5], [-1.25], [-1.0]])


def test_outcomes_alone_are_compared_with_the_greedy_outcome() -> None:
    assert close(estimate("remax", BATCH, rewards="outcome"), [[0.0, 0.0], [-1.0], [-2.0]])


@pytest.mark.parametrize(("scheme", "selection"), [("branching", "all"), ("independent", "mixed")])
def test_groups_that_are_no_tasks_are_refused(scheme: str, selection: str) -> None:
    require_greedy(Credit(estimator="rloo", options={}), scheme, selection)
    with pytest.raises(ConfigurationError, match="TW-greedy-pairing"):
        require_greedy(Credit(estimator="remax", options={}), scheme, selection)
