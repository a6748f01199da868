"""The credit study: compares every estimator with replays and score vectors; see `turnwise.credit_study.study`.

    episodes -> replays, score vectors, a critic's values, a second reading, greedy episodes -> study

Only this stage reads reward weights, and the other stages do not depend on its code: another weighting or another
estimator is studied on the same cached replays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from tasks.caching import depends_on
from tasks.credit.credit import greedy_rewards, rule_code, rule_packages
from tasks.credit.scores import read_scores
from tasks.credit_study.score_vectors import read_score_vectors
from tasks.orchestration.deferred import task
from turnwise.checking.credit_bias import Rule
from turnwise.config.schema import Credit, RewardSection, Section
from turnwise.credit import CreditBatch
from turnwise.credit.batch import weighted_returns
from turnwise.credit_study.study import Study, examine
from turnwise.credit_study.truth import Decisions, Truth, replayed_truth
from turnwise.data.arrays import Ragged, TrajectoryArrays
from turnwise.data.trajectory_files import read_arrays
from turnwise.errors import WorldLost
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients

STUDY_FILE = "study.json"
FEWEST_REPLAYS = 2
"""Fewest continuations per state. From a single one the uncertainty of the state's value cannot be estimated."""

Rewards = Mapping[str, RewardSection]


class StudyParameters(Section):
    """The parameters of the study."""

    rewards: dict[str, RewardSection]
    turn_limit: int
    """The world's turn limit."""
    seed: int
    """Seed of the resamples from which intervals are computed."""
    further: dict[str, Credit] = Field(default_factory=dict)
    """Rules that are studied with those that every study has, by title."""


def _further(parameters: StudyParameters) -> list[str]:
    return [credit.estimator for credit in parameters.further.values()]


def _plugin_reads(parameters: StudyParameters) -> dict[str, Any]:
    rules = _further(parameters)
    return plugin_ingredients(rule_code(rules), rule_packages(rules))


@task(name="credit_study", task_run_name="{label}: credit_study", retries=1)
@depends_on(
    kernel=("turnwise.credit_study.study", "turnwise.credit_study.truth"),
    writes="credit study 2",
    code=lambda parameters: rule_code(_further(parameters)),
    reads=_plugin_reads,
    platform_bound=False,
)
def credit_study(
    parameters: StudyParameters,
    *,
    episodes: Reference,
    replays: Reference,
    score_vectors: Reference,
    values: Reference | None = None,
    rescored: dict[str, Reference] | None = None,
    greedy: Reference | None = None,
    label: str = "credit study",
) -> Reference:
    """Compare every estimator with the true advantages.

    `values` holds a critic's values of the episodes, `rescored` by name what else rules need of the policy, `greedy`
    one greedy episode of each task: a rule that needs what is not given is left out of the study, which says so.

    Groups with a state that could not be replayed twice are left out; the metric `tasks_left_out` counts them.

    Raises:
        WorldLost: no group is left.
    """
    trajectories = read_arrays(default_store().folder(episodes))
    returns = _returns_of_states(read_arrays(default_store().folder(replays)), parameters.rewards)
    vectors = read_score_vectors(score_vectors)
    group = trajectories.group.tolist()
    # The numbers of each trajectory's turns among all turns: of its states, and of its score vectors.
    rows = trajectories.turn_rows(np.arange(len(trajectories.trained))).tolist()
    measured = {index: [returns.get(row, []) for row in of_turns] for index, of_turns in enumerate(rows) if of_turns}
    dropped = {
        group[index]
        for index, of_states in measured.items()
        if any(len(of_state) < FEWEST_REPLAYS for of_state in of_states)
    }
    kept = [index for index in measured if group[index] not in dropped]
    if not kept:
        raise WorldLost(
            "the study must be able to replay at least one group's states; the world lost all of them", "TW-world-lost"
        )
    chosen = trajectories.select(kept)
    scores = None if values is None else read_scores(values)
    baselines = {} if greedy is None else greedy_rewards(parameters.rewards, greedy)
    played_greedily = baselines.keys() >= {*chosen.group.tolist()}
    batch = CreditBatch.of(
        chosen,
        parameters.rewards,
        values=None if scores is None else scores.per_token.select(kept),
        bootstrap=None if scores is None else scores.at_end[kept],
        greedy_rewards=Ragged.of([baselines[task] for task in chosen.group.tolist()]) if played_greedily else None,
        rescored={name: read_scores(made).per_token.select(kept) for name, made in (rescored or {}).items()},
    )
    study = examine(
        batch,
        truth_of(chosen, [measured[index] for index in kept], parameters.rewards),
        vectors[[row for index in kept for row in rows[index]]],
        Decisions.of(chosen),
        turn_limit=parameters.turn_limit,
        seed=parameters.seed,
        further=[Rule(title, credit.estimator, credit.options) for title, credit in parameters.further.items()],
    )
    with default_store().write("credit_study") as draft:
        (draft.folder / STUDY_FILE).write_text(study.to_json(), encoding="utf-8")
        draft.metrics.update(tasks=study.tasks, turns=study.turns, tasks_left_out=len(dropped))
    return draft.reference


def read_study(reference: Reference) -> Study:
    """The study that an artifact holds."""
    return Study.from_json((default_store().folder(reference) / STUDY_FILE).read_text(encoding="utf-8"))


def truth_of(
    trajectories: TrajectoryArrays,
    continued: Sequence[Sequence[Sequence[float]]],
    rewards: Rewards,
) -> Truth:
    """The true advantages. `continued` holds the returns of continuations, by trajectory and state."""
    return replayed_truth(weighted_returns(trajectories, rewards), continued)


def _returns_of_states(continuations: TrajectoryArrays, rewards: Rewards) -> dict[int, list[float]]:
    """The returns of the continuations of each state, by the number of the state."""
    by_state: dict[int, list[float]] = {}
    for state, earned in zip(continuations.group.tolist(), weighted_returns(continuations, rewards), strict=True):
        by_state.setdefault(state, []).append(earned)
    return by_state
