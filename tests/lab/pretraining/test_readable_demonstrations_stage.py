"""The stage `readable_demonstrations`: what mentions a withheld name is left out, in the real worlds that have some."""

from __future__ import annotations

import pytest
from stage_samples import Small, tiny

from lab.pretraining.pretrain import FilterParameters, WithheldNames, readable_demonstrations
from tasks.prepare.imitation import texts_to_imitate
from tasks.prepare.materials import DemonstrationParameters, demonstrations, task_set
from turnwise.config.schema import WorldSection
from turnwise.store import Reference, default_store
from turnwise.training_runs.state import TaskSetParameters, play_parameters


def played(world: WorldSection, count: int, noise: float) -> Reference:
    play = play_parameters(tiny()).model_copy(update={"world": world})
    tasks = task_set.fn(TaskSetParameters(world=world, split="train", tasks=count))
    return demonstrations.fn(DemonstrationParameters(**dict(play), seed=0, count=count, noise=noise), task_set=tasks)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("search", {"hops": [1], "turns": 3, "passages": 3}),
        ("textcraft", {"depths": [1, 2], "distractors": 2, "turns": 8}),
        ("bandit", {"unseen": "pairs"}),
    ],
)
def test_no_kept_demonstration_mentions_a_name_that_only_other_splits_are_about(
    small: Small, name: str, parameters: dict[str, object]
) -> None:
    from turnwise.world import make_world

    world = WorldSection(name=name, parameters=parameters)
    before = played(world, 60, 0.5)
    kept = readable_demonstrations.fn(FilterParameters(world=world), demonstrations=before)
    withheld = WithheldNames(make_world(name, parameters).withheld_names())
    assert any(map(withheld.found_in, texts_to_imitate(before)))
    assert not any(map(withheld.found_in, texts_to_imitate(kept)))
    metrics = default_store().metrics(kept)
    assert 0 < metrics["kept"] < metrics["played"] == 60


def test_a_world_that_withholds_no_name_keeps_all(small: Small) -> None:
    kept = readable_demonstrations.fn(
        FilterParameters(world=small.experiment.world), demonstrations=small.demonstrations
    )
    assert texts_to_imitate(kept) == texts_to_imitate(small.demonstrations)
