"""Rejection sampling: selects trajectories to imitate, as credit: 1 on all their turns, 0 on all others."""

from __future__ import annotations

from tasks.credit.credit import save_credit
from tasks.playing import the_world, world_code
from tasks.stage import stage
from turnwise.config.schema import RewardSection, Section, WorldSection
from turnwise.credit import CreditBatch
from turnwise.credit.rejection_sampling import successes
from turnwise.data.metrics import weighted_rewards
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store


class KeepParameters(Section):
    """The parameters of the selection."""

    world: WorldSection
    """The world whose primary metric decides."""
    rewards: dict[str, RewardSection]
    """Reward weights. They enter the reported rewards and do not affect the selection."""
    threshold: float


@stage("keep", code=world_code, platform_bound=False)
def keep(parameters: KeepParameters, *, rollout: Reference) -> Reference:
    """Credit every trajectory that has a reply to learn from: 1 if selected, else 0.

    The metric `kept` counts the selected trajectories.
    """
    trajectories = read_trajectories(default_store().folder(rollout))
    chosen = frozenset(successes(trajectories, the_world(parameters.world).primary_metric, parameters.threshold))
    with_replies = [index for index, each in enumerate(trajectories) if any(turn.trained for turn in each.turns)]
    rewards = [weighted_rewards(trajectories[index], parameters.rewards) for index in with_replies]
    batch = CreditBatch(
        group=[trajectories[index].group for index in with_replies],
        turn_rewards=[of_turns for of_turns, _ in rewards],
        outcome=[outcome for _, outcome in rewards],
        reply_lengths=[[len(turn.reply_tokens) for turn in trajectories[index].turns] for index in with_replies],
    )
    advantages = [[float(index in chosen)] * len(trajectories[index].turns) for index in with_replies]
    with default_store().write("credit") as draft:
        save_credit(draft, with_replies, batch, advantages, sampled=len(trajectories))
        draft.metrics["kept"] = len(chosen)
    return draft.reference
