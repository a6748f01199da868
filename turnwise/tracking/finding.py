"""Look-up of recorded runs by id, name or tag, together with the artifacts that they made.

    for run in find_runs("sqlite:////.../mlflow.db", "mt-grpo seed 1"):
        run.artifacts.iterations[-1]["policy"]

A run's `artifacts.json` names every artifact that it read and made, iteration by iteration, and holds its configured
parameters: this file and the store are all that is needed to look into a run.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict

from turnwise.data.outcomes import EarlyEnd
from turnwise.errors import ConfigurationError
from turnwise.store import Reference
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import place_of
from turnwise.tracking.library import PARENT
from turnwise.tracking.runs import LEFT_OUT, SEEDS
from turnwise.tracking.views import view_address
from turnwise.world import Split, World, make_world

ARTIFACTS_FILE = "artifacts.json"
BASELINES_FILE = "baselines.json"
UNCOMMITTED_FILE = "uncommitted.diff"
UNTIL = "ablation.seeds.until"
"""The parameter of an ablation whose seeds are added until its comparisons are decided."""
SHORTEST_ID = 6
"""Fewest characters of an id that are looked up as its prefix."""
SHOWN_ID = 8
LISTED = 12
"""How many recorded names an error message lists."""

_logger = logging.getLogger(__name__)


class RunArtifacts(BaseModel):
    """All that one run, a variant with a seed, read and made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: str
    seed: int
    experiment: dict[str, Any]
    """The variant's own parameters as it began, every section of them."""
    prepared: dict[str, Reference]
    """What all runs of the ablation share: each split's task set (`test_task_set`), `demonstrations`, `tokenizer` and
    `warm_start`."""
    start: Reference
    """The evaluation of the warm start on the validation task set."""
    start_at_horizon: Reference | None = None
    """The same at the training's limit on turns, where that is below the world's."""
    iterations: list[dict[str, Reference]]
    """What each iteration made, from the first, by name: `rollout`, `credit`, `policy`, and what else there was."""
    ended: EarlyEnd | None = None
    """How a guard or an alarm ended it; None where it made all its iterations, and while it goes on."""
    test: Reference | None = None
    test_at_horizon: Reference | None = None

    @property
    def final_policy(self) -> Reference:
        """The policy that the run ended with, or has so far: after a return to a healthy policy, that one."""
        if not self.iterations:
            return self.prepared["warm_start"]
        last = self.iterations[-1]
        return last.get("returned", last["policy"])

    @property
    def world(self) -> World:
        """The world in which it played, made as it was then."""
        section = self.experiment["world"]
        return _made_world(section["name"], json.dumps(section["parameters"]))

    def task_set(self, split: Split) -> Reference:
        """The task set of a split."""
        return self.prepared[f"{split}_task_set"]


@cache
def _made_world(name: str, parameters: str) -> World:
    return make_world(name, json.loads(parameters))


class BaselinesArtifacts(BaseModel):
    """The evaluations on the test task set that all runs of an ablation are compared with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluations: dict[str, Reference]
    """Of the world's baseline policies and of the warm start, by name."""


@dataclass(frozen=True)
class RecordedRun:
    """One variant with one seed, as recorded in MLflow."""

    id: str
    name: str
    ablation: str
    """The name of its parent run; empty where the parent is missing."""
    finished: bool
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    """The last value of each metric."""
    artifacts: RunArtifacts
    baselines: Mapping[str, Reference]
    """The evaluations of the world's baseline policies and of the warm start on the test task set, by name."""
    race: str | None = None
    """After how many seeds each comparison of its ablation ended, in sentences, where seeds were added until they were
    decided; empty while they are, and None where seeds were listed."""

    @property
    def ended(self) -> EarlyEnd | None:
        """How a guard or an alarm ended it, which is an outcome; None where it made all its iterations."""
        return self.artifacts.ended

    @property
    def left_out(self) -> str:
        """The fault, `mismatch` or `not_finite`, for which it is left out of comparisons; empty if there was none."""
        return self.tags.get(LEFT_OUT, "")


def find_runs(tracking_uri: str, wanted: str = "") -> list[RecordedRun]:
    """The runs that `wanted` names, in the order in which they were started.

    `wanted` is one of: an MLflow id or a prefix of it (at least 6 characters); the name of a run (`mt-grpo seed 1`, or
    with the name or id of its ablation `credit/mt-grpo seed 1`); the name of an ablation (all its runs); a tag
    (`commit=4f2a...`); empty (all runs of the latest ablation). Of several runs with one name the latest is taken, and
    a warning says how to name the others.

    Raises:
        ConfigurationError: there is no such run, or none that has recorded artifacts yet.
    """
    client = TrackingClient(tracking_uri)
    entities = client.runs()
    selected = _matching_runs(entities, wanted)
    if not selected:
        names = [repr(name) for name in dict.fromkeys(e.info.run_name for e in reversed(entities))]
        latest = [*names[:LISTED], *([f"and {len(names) - LISTED} more"] if len(names) > LISTED else [])]
        raise ConfigurationError(
            f"a run must be recorded to be found; in {place_of(tracking_uri)} there is none"
            f"{f' with the id, name or tag {wanted!r}' if wanted else ' of an ablation'}; the latest are "
            f"{', '.join(latest) or 'none: run an ablation first'}",
            "TW-unknown-run",
        )
    runs = _with_artifacts(client, entities, selected)
    if not runs:
        raise ConfigurationError(
            f"a run must have made something to be looked into; {wanted or 'the latest ablation'!r} has recorded no "
            f"{ARTIFACTS_FILE}: run it again, which finds in the store what is computed, or choose another",
            "TW-other-version",
        )
    return runs


def find_all_runs(tracking_uri: str) -> list[RecordedRun]:
    """Every run that has recorded its artifacts, in the order in which they were started.

    Raises ConfigurationError where there is none.
    """
    client = TrackingClient(tracking_uri)
    entities = client.runs()
    runs = _with_artifacts(client, entities, [entity for entity in entities if PARENT in entity.data.tags])
    if not runs:
        raise ConfigurationError(
            f"an ablation must be recorded to be looked into; in {place_of(tracking_uri)} there is none: run one first",
            "TW-unknown-run",
        )
    return runs


def newest_view(tracking_uri: str) -> tuple[str, str] | None:
    """The name of the ablation that was begun last and has ended, and where MLflow shows its charts by variant.

    The place is relative to the address of MLflow's pages. None where no ablation has ended.
    """
    ablations = [
        entity
        for entity in TrackingClient(tracking_uri).runs()
        if PARENT not in entity.data.tags and entity.info.status == "FINISHED"
    ]
    if not ablations:
        return None
    info = ablations[-1].info
    return info.run_name, view_address(info.experiment_id, info.run_id)


def read_text(tracking_uri: str, run_id: str, name: str) -> str | None:
    """The text of one of a run's files, e.g. `uncommitted.diff`; None where the run has no such file."""
    client = TrackingClient(tracking_uri)
    return _read(client, client.run(run_id), name)


def _matching_runs(entities: list[Any], wanted: str) -> list[Any]:
    """The runs (children of ablations) that `wanted` names: see `find_runs`."""
    parents = [entity for entity in entities if PARENT not in entity.data.tags]
    children = [entity for entity in entities if PARENT in entity.data.tags]

    def children_of(parent: Any) -> list[Any]:
        return [child for child in children if child.data.tags[PARENT] == parent.info.run_id]

    if not wanted:
        return children_of(parents[-1]) if parents else []
    if len(wanted) >= SHORTEST_ID:
        for match in (entity for entity in entities if entity.info.run_id.startswith(wanted)):
            return [match] if PARENT in match.data.tags else children_of(match)
    matches = [entity for entity in entities if entity.info.run_name == wanted] or _find_ablation_runs(
        wanted, parents, children
    )
    if matches:
        if len(matches) > 1:
            _logger.warning(_ambiguity_warning(wanted, matches, entities))
        return [matches[-1]] if PARENT in matches[-1].data.tags else children_of(matches[-1])
    key, equals, value = wanted.partition("=")
    return [child for child in children if equals and child.data.tags.get(key) == value]


def _find_ablation_runs(wanted: str, parents: list[Any], children: list[Any]) -> list[Any]:
    """The runs that `ABLATION/RUN` names, where ABLATION is an ablation's name or a prefix of its id."""
    ablation, _, name = wanted.partition("/")
    by_id = [parent for parent in parents if len(ablation) >= SHORTEST_ID and parent.info.run_id.startswith(ablation)]
    parent_ids = {parent.info.run_id for parent in by_id or parents if by_id or parent.info.run_name == ablation}
    return [child for child in children if child.info.run_name == name and child.data.tags[PARENT] in parent_ids]


def _ambiguity_warning(wanted: str, matches: list[Any], entities: list[Any]) -> str:
    """The warning that a name is ambiguous: which run was taken, and how to name each of the others."""
    names = {entity.info.run_id: entity.info.run_name for entity in entities}

    def full(entity: Any) -> str:
        """`ABLATION/RUN` for a run, the plain name for an ablation."""
        of = entity.data.tags.get(PARENT)
        return entity.info.run_name if of is None else f"{names.get(of, of)}/{entity.info.run_name}"

    count = Counter(map(full, matches))
    *others, newest = (
        f"'{full(entity)}'" if count[full(entity)] == 1 and full(entity) != wanted else entity.info.run_id[:SHOWN_ID]
        for entity in matches
    )
    return (
        f"{wanted!r} names {len(matches)} that are recorded; this is the newest, {newest}. "
        f"To name another, say {' or '.join(reversed(others[-LISTED:]))}"
    )


def _with_artifacts(client: TrackingClient, entities: list[Any], selected: list[Any]) -> list[RecordedRun]:
    """The selected runs that have recorded their artifacts; `entities` has their parents."""
    parents = {entity.info.run_id: entity for entity in entities if PARENT not in entity.data.tags}
    runs = []
    for entity in selected:
        content = _read(client, entity, ARTIFACTS_FILE)
        if content is not None:
            parent = parents.get(entity.data.tags[PARENT])
            runs.append(_recorded_run(client, entity, parent, RunArtifacts.model_validate_json(content)))
    return runs


def _recorded_run(client: TrackingClient, entity: Any, parent: Any, artifacts: RunArtifacts) -> RecordedRun:
    baseline_episodes = None if parent is None else _read(client, parent, BASELINES_FILE)
    return RecordedRun(
        id=entity.info.run_id,
        name=entity.info.run_name,
        ablation="" if parent is None else parent.info.run_name,
        finished=entity.info.status == "FINISHED",
        tags=dict(entity.data.tags),
        metrics=dict(entity.data.metrics),
        artifacts=artifacts,
        baselines={}
        if baseline_episodes is None
        else BaselinesArtifacts.model_validate_json(baseline_episodes).evaluations,
        race=None if parent is None or UNTIL not in parent.data.params else parent.data.tags.get(SEEDS, ""),
    )


def _read(client: TrackingClient, entity: Any, name: str) -> str | None:
    """The text of one of the run's files; None where the run has no such file."""
    content = client.content(entity, name)
    return None if content is None else content.decode()
