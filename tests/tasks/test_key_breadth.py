"""How broad cache keys are: by stage, the modules whose code a result depends on.

`python tests/tasks/test_key_breadth.py` prints them all.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

import tasks
from tasks.caching import all_dependencies
from turnwise.store.fingerprint import DETERMINES_NOTHING, modules_of

TABLE: Mapping[str, tuple[int, str]] = {
    "baseline": (50, "agent agent.formats agent.modes config data policy statistics world"),
    "conversations": (15, "config data world"),
    "converted_policy": (20, "config policy world"),
    "credit": (30, "config credit data world"),
    "credit_study": (40, "checking config credit credit_study data statistics world"),
    "demonstrations": (50, "agent agent.formats agent.modes config data policy world"),
    "evaluate": (100, "agent agent.formats agent.modes config data policy policy.engines statistics world"),
    "fine_tune": (115, "agent agent.formats agent.modes config credit data policy policy.critic policy.learner world"),
    "first_steps": (72, "config credit data policy policy.critic policy.learner world"),
    "gather": (20, "config data world"),
    "health": (40, "agent config credit curriculum data health policy world"),
    "initial_critic": (70, "config credit data policy policy.critic policy.learner world"),
    "initial_policy": (25, "config policy world"),
    "keep": (25, "config credit data world"),
    "learn_values": (70, "config credit data policy policy.critic policy.learner world"),
    "probe": (50, "config credit data health policy world"),
    "reference": (35, "config data policy world"),
    "replays": (100, "agent agent.formats agent.modes config data policy policy.engines world"),
    "report": (40, "config credit data policy results statistics world"),
    "rescore": (35, "config data policy world"),
    "return_to": (0, ""),
    "rollout": (100, "agent agent.formats agent.modes config data policy policy.engines world"),
    "score_vectors": (35, "config data policy world"),
    "select": (20, "config credit data world"),
    "study_episodes": (100, "agent agent.formats agent.modes config data policy policy.engines world"),
    "task_set": (10, "data world"),
    "tokenizer": (65, "agent agent.formats agent.modes config data policy world"),
    "update": (70, "config credit data policy policy.critic policy.learner world"),
    "values": (35, "config data policy policy.critic world"),
    "warm_start": (
        140,
        "agent agent.formats agent.modes config credit data policy policy.critic policy.engines policy.learner world",
    ),
}
"""By stage, the most modules whose code may be in its key, and the packages of the library that they are in."""
SAMPLES = {"evaluate", "replays", "rollout", "study_episodes", "warm_start"}
TRAINS = {"fine_tune", "first_steps", "initial_critic", "learn_values", "update", "warm_start"}
ENGINE = ("turnwise.policy.engines", "turnwise.agent.sampling", "turnwise.policy.memory_plan")
LEARNER = (
    "turnwise.policy.learner",
    "turnwise.policy.critic.critic",
    "turnwise.policy.critic.value_learning",
    "turnwise.policy.muon",
    "turnwise.policy.optimizer",
)
IN_NO_KEY = ("flows", "tasks", "turnwise.reporting", "turnwise.store", "turnwise.tracking")
MOST_OF_CREDIT = 30


def modules() -> dict[str, tuple[str, ...]]:
    """By stage of this package, the modules whose code is in its key, without those that parameters name."""
    return {
        name: modules_of(stage.kernel, [*DETERMINES_NOTHING])
        for name, stage in sorted(all_dependencies().items())
        if stage.kernel is not None and stage.function.__module__.startswith(f"{tasks.__name__}.")
    }


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def packages_of(found: tuple[str, ...]) -> set[str]:
    """The packages of the library that these modules are in, without `turnwise` itself."""
    return {module.removeprefix("turnwise.").rpartition(".")[0] for module in found} - {""}


def test_every_stage_of_the_package_declares_its_kernel_and_its_format() -> None:
    ours = {name: stage for name, stage in all_dependencies().items() if stage.function.__module__.startswith("tasks.")}
    assert {*modules()} == {*ours} == {*TABLE}
    assert [name for name, stage in ours.items() if not stage.writes] == []


@pytest.mark.parametrize("stage", TABLE)
def test_no_key_is_broader_than_the_table_says(stage: str) -> None:
    found = modules()[stage]
    most, packages = TABLE[stage]
    advice = (
        "a result depends on more code than before: import the module that you need and not more, or, if the stage "
        "does compute with it, change the table"
    )
    assert sorted(packages_of(found) - {*packages.split()}) == [], advice
    assert len(found) <= most, advice


def test_advantages_depend_on_at_most_thirty_modules() -> None:
    credit = all_dependencies()["credit"]
    assert credit.kernel is not None
    assert len(modules()["credit"]) <= MOST_OF_CREDIT
    with_penalty = modules_of([*credit.kernel, "turnwise.policy.divergence"], [*DETERMINES_NOTHING])
    assert len(with_penalty) <= MOST_OF_CREDIT


@pytest.mark.parametrize(("packages", "stages"), [(ENGINE, SAMPLES), (LEARNER, TRAINS), (IN_NO_KEY, set())])
def test_engines_are_in_the_keys_of_what_samples_learners_of_what_trains_and_machinery_in_none(
    packages: tuple[str, ...], stages: set[str]
) -> None:
    broad = {name for name, found in modules().items() if any(is_in(module, packages) for module in found)}
    assert broad == stages


if __name__ == "__main__":
    for name, found in modules().items():
        sys.stdout.write(f"{name}: {len(found)}\n" + "".join(f"    {each}\n" for each in found))
