"""The credit study: compares every estimator with replays and score vectors; see `turnwise.credit_study.study`.

    episodes -> replays, score vectors, a critic's values, a second reading, greedy episodes -> study

Only this stage reads reward weights, and the other stages do not depend on its code: another weighting or another
estimator is studied on the same cached replays.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from tasks.caching import depends_on
from tasks.credit.credit import rule_code, rule_reads
from tasks.credit.scores import read_scores
from tasks.credit_study.score_vectors import read_score_vectors
from tasks.orchestration.deferred import task
from tasks.restoring import opened
from turnwise.checking.credit_bias import Rule
from turnwise.config.schema import Credit, RewardSection, Section
from turnwise.credit_study.study import Study, study_replays
from turnwise.data.trajectory_files import read_arrays
from turnwise.store import Reference, default_store

STUDY_FILE = "study.json"


class StudyParameters(Section):
    """The parameters of the study."""

    rewards: dict[str, RewardSection]
    turn_limit: int
    """The world's turn limit."""
    seed: int
    """Seed of the resamples from which intervals are computed."""
    further: dict[str, Credit] = Field(default_factory=dict)
    """Rules that are studied with those that every study has, by title."""


@task(name="credit_study", task_run_name="{label}: credit_study", retries=1)
@depends_on(
    kernel=("turnwise.credit_study.study",),
    writes="credit study 2",
    code=lambda parameters: rule_code(parameters.further.values()),
    reads=lambda parameters: rule_reads(parameters.further.values()),
    platform_bound=False,
)
def credit_study(
    parameters: StudyParameters,
    *,
    episodes: Reference,
    replays: Sequence[Reference],
    score_vectors: Sequence[Reference],
    values: Reference | None = None,
    rescored: dict[str, Reference] | None = None,
    greedy: Reference | None = None,
    label: str = "credit study",
) -> Reference:
    """Compare every estimator with the true advantages.

    `replays` and `score_vectors` are those of each task, `values` holds a critic's values of the episodes, `rescored`
    by name what else rules need of the policy, `greedy` one greedy episode of each task: a rule that needs what is not
    given is left out of the study, which says so.

    Groups with a state that could not be replayed twice are left out; the metric `tasks_left_out` counts them.

    Raises:
        WorldLost: no group is left.
    """
    trajectories = read_arrays(default_store().folder(episodes))
    study, left_out = study_replays(
        trajectories,
        [read_arrays(default_store().folder(task_replays)) for task_replays in replays],
        read_score_vectors(score_vectors, trajectories),
        parameters.rewards,
        values=None if values is None else read_scores(values),
        rescored={name: read_scores(scores).per_token for name, scores in (rescored or {}).items()},
        greedy=None if greedy is None else read_arrays(opened(greedy)),
        turn_limit=parameters.turn_limit,
        seed=parameters.seed,
        further=[Rule(title, credit.estimator, credit.options) for title, credit in parameters.further.items()],
    )
    with default_store().write("credit_study") as draft:
        (draft.folder / STUDY_FILE).write_text(study.to_json(), encoding="utf-8")
        draft.metrics.update(tasks=study.tasks, turns=study.turns, tasks_left_out=left_out)
    return draft.reference


def read_study(reference: Reference) -> Study:
    """The study that an artifact holds."""
    return Study.from_json((default_store().folder(reference) / STUDY_FILE).read_text(encoding="utf-8"))
