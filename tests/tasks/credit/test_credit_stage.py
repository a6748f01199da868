"""The stage `credit`: from the rewards of a rollout to the advantages of its turns and tokens."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from stage_samples import rows, saved, trajectory, turn

from tasks.credit.credit import CreditParameters, credit
from tasks.credit.select import SelectParameters, select
from turnwise.config.schema import Credit, RewardSection, SelectionSection
from turnwise.data.scores import SCORES_FILE
from turnwise.data.trajectory_files import CREDIT_FILE
from turnwise.store import Reference, default_store

pytestmark = pytest.mark.usefixtures("turnwise_home")

REWARDS = {"goal": RewardSection(level="outcome", weight=2.0), "tool": RewardSection(level="turn", weight=0.5)}
# Group 0: returns 2.5, 0 and 0.5; group 1 has one survivor; group 2: 0 and 0.
EPISODES = [
    trajectory(0, 0, [turn({"tool": 1.0}, tokens=2), turn({"goal": 1.0}, tokens=3)]),
    trajectory(0, 1, [turn()]),
    trajectory(0, 2, [turn({"tool": 1.0}), turn()]),
    trajectory(1, 0, [turn({"goal": 1.0})]),
    trajectory(2, 0, [turn()]),
    trajectory(2, 1, [turn({"unweighted": 9.0})]),
]


def credited(estimator: str = "rloo", options: dict[str, Any] | None = None, **inputs: Reference) -> Reference:
    parameters = CreditParameters(
        rewards=REWARDS, credit=Credit(estimator=estimator, options=options or {}), reference=None
    )
    return credit.fn(parameters, **{"rollout": saved(EPISODES), **inputs})


def column(reference: Reference, name: str) -> list[Any]:
    return [row[name] for row in rows(reference, CREDIT_FILE)]


def scores(per_token: list[list[float]], at_end: list[float]) -> Reference:
    """A critic's values."""
    with default_store().write("scores") as draft:
        table = pa.table({"per_token": per_token, "at_end": at_end})
        parquet.write_table(table, draft.folder / SCORES_FILE)
    return draft.reference


def test_every_turn_has_its_weighted_reward_its_outcome_and_an_advantage_worked_by_hand() -> None:
    reference = credited(options={"rewards": "merged"})
    assert column(reference, "trajectory") == [0, 0, 1, 2, 2, 4, 5]
    assert column(reference, "group") == [0, 0, 0, 0, 0, 2, 2]
    assert column(reference, "turn") == [0, 1, 0, 0, 1, 0, 0]
    assert column(reference, "turn_reward") == [0.5, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert column(reference, "outcome") == [2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    # Each minus the mean of the others: 2.5 - 0.25, 0 - 1.5, 0.5 - 1.25.
    assert column(reference, "advantage") == pytest.approx([2.25, 2.25, -1.5, -0.75, -0.75, 0.0, 0.0])
    assert column(reference, "token_advantages") == [None] * 7 == column(reference, "value_targets")


def test_the_outcome_alone_is_compared_where_that_is_configured() -> None:
    # 2 - 0, 0 - 1, 0 - 1
    assert column(credited(), "advantage") == pytest.approx([2.0, 2.0, -1.0, -1.0, -1.0, 0.0, 0.0])


def test_the_metrics_count_what_is_trained_on_and_what_is_left_out() -> None:
    metrics = default_store().metrics(credited(options={"rewards": "merged"}))
    assert (metrics["groups"], metrics["left_out"]) == (2, 1)
    assert metrics["reward"] == pytest.approx((2.5 + 0 + 0.5 + 0 + 0) / 5)
    # Population deviations: of 2.5, 0, 0.5 it is sqrt(7/6), of 0, 0 it is 0; the mean over groups.
    assert metrics["reward_deviation_within_groups"] == pytest.approx((7 / 6) ** 0.5 / 2)
    assert metrics["advantage_mean"] == pytest.approx((2.25 * 2 - 1.5 - 0.75 * 2) / 7)
    assert metrics["advantage_maximum"] == pytest.approx(2.25)


def test_groups_that_were_not_selected_have_no_row() -> None:
    section = SelectionSection(rule="uncertainty", options={"share": 0.34})
    selection = select.fn(
        SelectParameters(rewards=REWARDS, selection=section, wanted=3, seed=1, iteration=1), rollout=saved(EPISODES)
    )
    reference = credited(selection=selection)
    assert set(column(reference, "group")) == {0}
    assert default_store().metrics(reference)["left_out"] == 3


def test_a_rule_that_compares_nothing_keeps_a_group_of_one() -> None:
    reference = credited("reinforce++", {"rewards": "merged"})
    assert sorted(set(column(reference, "trajectory"))) == [0, 1, 2, 3, 4, 5]
    lengths = [len(each) for each in column(reference, "token_advantages")]
    assert lengths == [2, 3, 3, 3, 3, 3, 3, 3]
    for advantage, tokens in zip(column(reference, "advantage"), column(reference, "token_advantages"), strict=True):
        assert advantage == pytest.approx(sum(tokens) / len(tokens)), "that of a turn is the mean over its tokens"


def test_a_critics_values_are_subtracted_from_what_is_still_to_come_and_its_targets_are_kept() -> None:
    values = [[0.5, 0.25, 1.0, 1.5, 2.0], [0.5] * 3, [0.0] * 6, [1.0] * 3, [0.0] * 3, [0.0] * 3]
    options = {"whiten": False}
    reference = credited("gae", options, values=scores(values, [0.0] * 6))
    tokens, targets = column(reference, "token_advantages"), column(reference, "value_targets")
    # With gamma and lambda 1: 0.5 is paid at the end of the first reply, 2 at the end of the second.
    assert targets[0] == pytest.approx([2.5, 2.5])
    assert targets[1] == pytest.approx([2.0, 2.0, 2.0])
    assert tokens[0] == pytest.approx([2.0, 2.25])
    assert tokens[1] == pytest.approx([1.0, 0.5, 0.0])
    assert tokens[2] == pytest.approx([-0.5] * 3) and targets[2] == pytest.approx([0.0] * 3)
    assert column(reference, "advantage")[:2] == pytest.approx([2.125, 0.5])


def test_an_empty_rollout_has_no_rows() -> None:
    reference = credited(rollout=saved([]))
    assert rows(reference, CREDIT_FILE) == []
    assert default_store().metrics(reference)["groups"] == 0
