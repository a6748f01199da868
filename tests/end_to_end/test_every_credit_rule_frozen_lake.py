"""Every way to assign credit trains a small policy on the frozen lake."""

from __future__ import annotations

import pytest
from every_rule import CREDIT, experiment, require_trains, require_warm_up, trained

from turnwise.errors import ConfigurationError
from turnwise.store import default_store

pytestmark = [pytest.mark.engine, pytest.mark.chain, pytest.mark.usefixtures("rules_home")]


ASKING_FOR_ANSWERS = ("information-gain", "trace")
"""Rules for worlds whose tasks have a right answer, which this one's have not."""


@pytest.mark.parametrize("rule", [rule for rule in CREDIT if rule not in ASKING_FOR_ANSWERS])
def test_every_rule_trains(rule: str) -> None:
    require_trains("frozen_lake", rule)


@pytest.mark.parametrize("rule", ASKING_FOR_ANSWERS)
def test_where_no_task_has_a_right_answer_a_rule_that_asks_for_it_is_refused(rule: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{rule} asks a policy for the right answer .* 'frozen_lake' names"):
        experiment("frozen_lake", CREDIT[rule])


def test_while_the_critic_warms_up_the_policy_stays() -> None:
    require_warm_up("frozen_lake")


def test_a_selection_says_what_it_dropped_and_trains_on_the_rest() -> None:
    _, iterations = trained(experiment("frozen_lake", {"selection.rule": "uncertainty"}))
    for iteration in iterations:
        record = default_store().metrics(iteration.made["selection"])
        assert (record["groups_sampled"], record["groups_kept"]) == (4, 1)
        assert default_store().metrics(iteration.credit)["groups"] == 1


def test_a_whole_trajectory_and_its_turns_as_samples_have_the_same_first_gradient() -> None:
    # With the token mean the same tokens weigh the same; only the contexts are computed again.
    chosen = {"optimization.mini_batches": 1}
    whole, turns = (
        default_store().metrics(
            trained(experiment("frozen_lake", {**chosen, "optimization.sample": sample}))[1][0].policy
        )
        for sample in ("trajectory", "turn")
    )
    assert turns["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-4)
