"""Horizon: what an iteration's episodes say to the curriculum, and the limit on turns that follows.

The state is an artifact, whose limit the flow gives to the next rollout as a parameter: a resumed run reads the same
state and goes on. It is a parameter, and not the artifact itself, since rollouts that differ in nothing but how their
limit was come by are the same: variants of an ablation share them until their limits part.
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
    """What the next limit depends on, beside the episodes and the state before."""

    curriculum: CurriculumSection
    turns: int
    """The world's own limit."""
    iteration: int
    prompts: int | None
    """Of a branching rollout, whose first groups alone are episodes from their beginning; None: all are."""


@stage("horizon", platform_bound=False)
def horizon(parameters: HorizonParameters, *, rollout: Reference, before: Reference | None) -> Reference:
    """The curriculum's state after an iteration. `before` is that after the last one.

    Metrics: `limit`, that of this iteration's episodes; `share_at_limit`, of the episodes that it cut off, unsolved;
    `next_limit`. How many turns they had is told by the rollout.
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
    """The state that a horizon artifact holds."""
    values = json.loads((default_store().folder(reference) / STATE_FILE).read_text())
    return HorizonState(values["limit"], tuple(IterationCounts(**batch) for batch in values["batches"]))


def batch_of(episodes: Sequence[Trajectory], limit: int) -> IterationCounts:
    """What a curriculum is told of episodes that were played at a limit on turns."""
    return IterationCounts(
        episodes=len(episodes),
        successes=sum(episode.success for episode in episodes),
        at_limit=sum(ended_at(episode, limit) for episode in episodes),
    )
