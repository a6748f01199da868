"""Horizon: updates the curriculum from an iteration's episodes; the result is the next turn limit.

The curriculum's state is an artifact, so a resumed run continues from the same state. The flow reads the limit from it
and passes the limit, not the artifact, to the next rollout as a parameter: rollouts that differ only in how their limit
was arrived at are the same, and variants of an ablation share cached rollouts until their limits diverge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tasks.stage import stage
from turnwise.agent.branching import turn_of
from turnwise.config.schema import CurriculumSection, Section
from turnwise.curriculum.plateau import IterationCounts
from turnwise.curriculum.rules import HorizonState, make_curriculum
from turnwise.data.metrics import ended_at
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Reference, default_store

STATE_FILE = "horizon.json"


class HorizonParameters(Section):
    """The parameters of a curriculum step, in addition to the episodes and the previous state."""

    curriculum: CurriculumSection
    turns: int
    """The world's own turn limit."""
    iteration: int
    prompts: int | None
    """Number of prompts of a branching rollout, whose first groups alone start at the first turn; None: all do."""


@stage("horizon", platform_bound=False)
def horizon(parameters: HorizonParameters, *, rollout: Reference, before: Reference | None) -> Reference:
    """Compute the curriculum's state after an iteration. `before` is the state after the previous one.

    Metrics: `limit`, the turn limit of this iteration's episodes; `share_at_limit`, the share of episodes that it cut
    off unsolved; `next_limit`. The number of turns per episode is a metric of the rollout.
    """
    curriculum = make_curriculum(parameters.curriculum.rule, parameters.curriculum.options, parameters.turns)
    state = curriculum.first() if before is None else read_horizon(before)
    episodes = read_trajectories(default_store().folder(rollout))
    if parameters.prompts is not None:
        episodes = [episode for episode in episodes if turn_of(episode.group, parameters.prompts) == 0]
    batch = batch_of(episodes, state.limit)
    following = curriculum.next(state, parameters.iteration, batch)
    with default_store().write("horizon") as draft:
        (draft.folder / STATE_FILE).write_text(json.dumps(asdict(following), indent=1))
        draft.metrics.update(limit=state.limit, next_limit=following.limit)
        if episodes:
            draft.metrics["share_at_limit"] = batch.at_limit / batch.episodes
    return draft.reference


def read_horizon(reference: Reference) -> HorizonState:
    """The curriculum state that an artifact holds."""
    values = json.loads((default_store().folder(reference) / STATE_FILE).read_text())
    return HorizonState(values["limit"], tuple(IterationCounts(**batch) for batch in values["batches"]))


def batch_of(episodes: Sequence[Trajectory], limit: int) -> IterationCounts:
    """The counts that a curriculum learns from, for episodes played at a turn limit."""
    return IterationCounts(
        episodes=len(episodes),
        successes=sum(episode.success for episode in episodes),
        at_limit=sum(ended_at(episode, limit) for episode in episodes),
    )
