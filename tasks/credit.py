"""Credit: the rewards of a rollout, weighted and placed by configuration, become one advantage per turn."""

from __future__ import annotations

import logging
import math
import warnings

import pyarrow as pa
import pyarrow.parquet as parquet

from tasks.stage import stage
from turnwise.artifacts import Reference, default_store
from turnwise.credit import CreditBatch, estimate
from turnwise.measures import weighted_rewards
from turnwise.sections import Credit, RewardSection, Section
from turnwise.trajectory import Trajectory, read_trajectories

logger = logging.getLogger(__name__)

CREDIT_FILE = "credit.parquet"


class CreditParameters(Section):
    """What credit reads."""

    rewards: dict[str, RewardSection]
    credit: Credit


@stage("credit", platform_bound=False)
def credit(parameters: CreditParameters, *, rollout: Reference) -> Reference:
    """One row per turn: trajectory, turn, its weighted turn reward, the trajectory's outcome, its advantage.

    Trajectories of a group with fewer than two survivors have no row: they are left out of the update.
    """
    trajectories = read_trajectories(default_store().folder(rollout))
    kept = _with_company(trajectories)
    rewards = [weighted_rewards(trajectories[index], parameters.rewards) for index in kept]
    batch = CreditBatch(
        group=[trajectories[index].group for index in kept],
        turn_rewards=[of_turns for of_turns, _ in rewards],
        outcome=[outcome for _, outcome in rewards],
    )
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        advantages = estimate(parameters.credit.estimator, batch, **parameters.credit.options)
    with default_store().write("credit") as draft:
        parquet.write_table(_table(kept, batch, advantages), draft.folder / CREDIT_FILE)
        draft.metrics.update(_account(batch, advantages, len(trajectories)))
        if notes:
            draft.metrics["estimator_notes"] = len(notes)
            logger.info("%d notes of the estimator; the first: %s", len(notes), notes[0].message)
    return draft.reference


def read_advantages(reference: Reference) -> dict[int, list[float]]:
    """The advantages per turn of each trajectory that has any, by its index in the rollout."""
    advantages: dict[int, list[float]] = {}
    table = parquet.read_table(default_store().folder(reference) / CREDIT_FILE)
    for row in table.to_pylist():
        advantages.setdefault(row["trajectory"], []).append(row["advantage"])
    return advantages


def _with_company(trajectories: list[Trajectory]) -> list[int]:
    """The indices of trajectories that have a reply to train on, and another such in their group."""
    sizes: dict[int, int] = {}
    for trajectory in trajectories:
        sizes[trajectory.group] = sizes.get(trajectory.group, 0) + bool(trajectory.turns)
    return [index for index, trajectory in enumerate(trajectories) if trajectory.turns and sizes[trajectory.group] > 1]


def _table(kept: list[int], batch: CreditBatch, advantages: list[list[float]]) -> pa.Table:
    rows = [
        {
            "trajectory": index,
            "group": batch.group[position],
            "turn": turn,
            "turn_reward": batch.turn_rewards[position][turn],
            "outcome": batch.outcome[position],
            "advantage": advantages[position][turn],
        }
        for position, index in enumerate(kept)
        for turn in range(batch.turns[position])
    ]
    integers = [(name, pa.int32()) for name in ("trajectory", "group", "turn")]
    numbers = [(name, pa.float64()) for name in ("turn_reward", "outcome", "advantage")]
    return pa.Table.from_pylist(rows, schema=pa.schema(integers + numbers))


def _account(batch: CreditBatch, advantages: list[list[float]], sampled: int) -> dict[str, float]:
    """What the recorder is told: rewards, advantages, and how many groups carry no signal."""
    if not len(batch):
        return {"groups": 0, "dead_groups": 0, "left_out": sampled}
    totals = [math.fsum(turns) + outcome for turns, outcome in zip(batch.turn_rewards, batch.outcome, strict=True)]
    flat = [value for turns in advantages for value in turns]
    mean = math.fsum(flat) / len(flat)
    groups = batch.members.values()
    spread = [_deviation([totals[index] for index in members]) for members in groups]
    return {
        "groups": len(groups),
        "dead_groups": sum(all(not any(advantages[index]) for index in members) for members in groups),
        "left_out": sampled - len(batch),
        "reward": math.fsum(totals) / len(totals),
        "reward_deviation_within_groups": math.fsum(spread) / len(spread),
        "advantage_mean": mean,
        "advantage_deviation": _deviation(flat),
        "advantage_maximum": max(abs(value) for value in flat),
    }


def _deviation(values: list[float]) -> float:
    """The population deviation, for description only."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
