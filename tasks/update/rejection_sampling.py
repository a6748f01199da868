"""Rejection sampling: selects trajectories to imitate, as credit: 1 on all their turns, 0 on all others."""

from __future__ import annotations

import numpy as np

from tasks.caching import depends_on
from tasks.credit.credit import save_credit
from tasks.orchestration.deferred import task
from tasks.playing import world_code
from tasks.restoring import opened, trajectories_of
from turnwise.config.schema import RewardSection, Section, WorldSection
from turnwise.credit import CreditBatch
from turnwise.credit.rejection_sampling import successes
from turnwise.credit.selection import trainable
from turnwise.data.arrays import Advantages
from turnwise.data.trajectory_files import CREDIT, read_arrays
from turnwise.store import Reference, default_store
from turnwise.world import make_world


class KeepParameters(Section):
    """The parameters of the selection."""

    world: WorldSection
    """The world whose primary metric decides."""
    rewards: dict[str, RewardSection]
    """Reward weights. They enter the reported rewards and do not affect the selection."""
    threshold: float


@task(name="keep", task_run_name="{label}: keep", retries=1)
@depends_on(
    kernel=("turnwise.credit.batch", "turnwise.credit.rejection_sampling", "turnwise.credit.selection"),
    writes=CREDIT,
    code=lambda parameters: world_code(parameters.world),
    platform_bound=False,
)
def keep(parameters: KeepParameters, *, rollout: Reference, label: str = "keep") -> Reference:
    """Credit every trajectory that has a reply to learn from: 1 if selected, else 0.

    The metric `kept` counts the selected trajectories.
    """
    trajectories, arrays = trajectories_of(rollout), read_arrays(opened(rollout))
    world = make_world(parameters.world.name, parameters.world.parameters)
    success_rows = frozenset(successes(trajectories, world.primary_metric, parameters.threshold))
    with_replies = trainable(arrays, None, grouped=False)
    batch = CreditBatch.of(arrays.select(with_replies), parameters.rewards)
    selected = np.array([index in success_rows for index in with_replies], dtype=np.float64)
    advantages = Advantages(np.array(with_replies, dtype=np.int64), batch.on_every_turn(selected))
    with default_store().write("credit") as draft:
        save_credit(draft, batch, advantages, trajectory_count=len(trajectories))
        draft.metrics["kept"] = len(success_rows)
    return draft.reference
