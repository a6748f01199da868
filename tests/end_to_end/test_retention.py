"""Retention through the real chain: what was pruned is found, comes back to the same digest, and changes no run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.experiment import Run, run_variant
from flows.prepare import Prepared, prepare_materials, prepare_policy
from tasks.stage import Observer, StageCall, observing
from turnwise.config import Experiment, load
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import Reference, default_store
from turnwise.store.artifacts import EVERYTHING

pytestmark = pytest.mark.chain

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).parent / "tiny.yaml"
SMALL: dict[str, Any] = {
    "rollout.prompts": 4,
    "monitors.probe_every": None,
    "variants": {"base": {}},
    "ablation.variants": ["base"],
    "optimization.iterations": 4,
    "evaluation.every": 2,
}
ADVANTAGES = {"credit.estimator": "gae", "critic.mini_batches": 1}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adapter": {"optimization.adapter": {"rank": 2, "alpha": 4}},
    "critic": ADVANTAGES,
    "critic on the policy's trunk": {**ADVANTAGES, "critic.trunk": "policy", "critic.coefficient": 0.5},
}


def experiment(**settings: Any) -> Experiment:
    return load(ROOT / "params.yaml", [TINY], {**SMALL, **settings})


class Computed(Observer):
    """The stages that were computed and not found."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def finished(self, call: StageCall) -> None:
        self.stages += [] if call.cached else [call.stage]


@pytest.fixture(scope="module")
def prepared(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prepared, Path]]:
    """What every run starts from, and the home that holds it and no more."""
    home = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        chosen = experiment()
        yield prepare_policy(chosen, prepare_materials(chosen)), home


@pytest.fixture
def fresh(prepared: tuple[Prepared, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """What every run starts from, in a home of the test's own."""
    shutil.copytree(prepared[1], tmp_path / "home")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "home"))
    return prepared[0]


def everything(run: Run) -> list[Reference | None]:
    made = [
        (each.rollout, each.credit, each.policy, each.critic, each.evaluation, each.alarm, each.returned)
        for each in run.iterations
    ]
    return [*(reference for of_iteration in made for reference in of_iteration), run.test]


def learned(run: Run) -> list[Reference]:
    """The policies and the critics that a run made, in order, each once."""
    made = [reference for each in run.iterations for reference in (each.policy, each.critic, each.returned)]
    return list(dict.fromkeys(reference for reference in made if reference is not None))


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_policy_in_the_middle_comes_back_to_the_same_digest(settings: dict[str, Any], fresh: Prepared) -> None:
    run = run_variant(experiment(**settings), fresh, "base", 1)
    store = default_store()
    for reference in learned(run):
        store.prune(reference, EVERYTHING)
    middle = run.iterations[2].policy
    assert (store.folder(middle, MODEL_FILES) / "model.safetensors").is_file()
    assert not any(name.startswith("model") for name in store.pruned(middle))
    for reference in (middle, run.iterations[2].critic):
        if reference is not None:
            store.folder(reference)
            assert store.pruned(reference) == []
    for reference in learned(run):
        store.verify(reference)
    first = run.iterations[0].policy
    assert store.pruned(first) == list(store.manifest(first).files), "what was made on the way is pruned again"
    again = Computed()
    with observing(again):
        assert everything(run_variant(experiment(**settings), fresh, "base", 1)) == everything(run)
    assert again.stages == []
