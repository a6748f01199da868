"""Retention through the real chain: what was pruned is found, comes back to the same digest, and changes no run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from comparison import tiny_experiment
from project_copy import ROOT

from flows.train import train
from tasks.restoring import MODELS, opened
from tests.stage_calls import computed, stage_calls
from turnwise.errors import ArtifactError
from turnwise.experiment import Experiment, load
from turnwise.policy.adapter import has_adapter
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import Reference, default_store
from turnwise.store.retention import Keep, files_to_prune
from turnwise.training_runs.state import Iteration, Prepared, Run

pytestmark = pytest.mark.chain

WEIGHTS = ("model", "adapter/adapter_model")
SMALL: dict[str, Any] = {
    "rollout.prompts": 4,
    "monitors.probe_every": None,
    "variants": {"base": {}},
    "ablation.variants": ["base"],
    "optimization.iterations": 4,
    "evaluation.every": 2,
}
KEEP_ALL: dict[str, Any] = {"storage.keep_last": None, "storage.keep_optimizer": None}
AWAY_FROM_THE_START: dict[str, Any] = {
    "monitors.probe_every": 1,
    "monitors.probe_sample": 4,
    "evaluation.every": 9,
    "alarms.response": "return",
    "alarms.rules": {
        **dict.fromkeys(load(ROOT / "params.yaml").alarms.rules),
        "kl_warm_start": {"above": 1e-7},
    },
}
"""The warm start is healthy and every policy that has learned is not: alarms in iterations 2 and 4."""
ADVANTAGES = {"credit.estimator": "gae", "critic.mini_batches": 1}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adapter": {"optimization.adapter": {"rank": 2, "alpha": 4}},
    "critic": ADVANTAGES,
    "critic on the policy's trunk": {**ADVANTAGES, "critic.trunk": "policy", "critic.coefficient": 0.5},
}


def experiment(**settings: Any) -> Experiment:
    return tiny_experiment({**SMALL, **settings})


def everything(run: Run) -> list[Reference | None]:
    made = [
        (each.rollout, each.credit, each.policy, each.critic, each.evaluation, each.health, each.returned)
        for each in run.iterations
    ]
    return [*(reference for of_iteration in made for reference in of_iteration), run.test]


def learned(run: Run) -> list[Reference]:
    """The policies and the critics that a run made, in order, each once."""
    made = [reference for each in run.iterations for reference in (each.policy, each.critic, each.returned)]
    return list(dict.fromkeys(reference for reference in made if reference is not None))


def left(references: Iterable[Reference]) -> list[str]:
    """What is left of each: all of it, the weights, or what cannot be made again."""
    store, found = default_store(), []
    for reference in references:
        store.verify(reference)
        gone = store.pruned(reference)
        weights = not gone or any(name.startswith(WEIGHTS) for name in set(store.manifest(reference).files) - set(gone))
        found.append("all" if not gone else "weights" if weights else "metrics")
    return found


@pytest.fixture(scope="module")
def unpruned(prepared: tuple[Prepared, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Reference | None]:
    """All that the run makes which keeps everything."""
    home = tmp_path_factory.mktemp("unpruned") / "home"
    shutil.copytree(prepared[1], home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(home))
        run = train(experiment(**KEEP_ALL), prepared[0], "base", 1)
        assert left(learned(run)) == ["all"] * 4
        return everything(run)


def test_a_run_prunes_behind_itself_and_a_repeat_computes_nothing(
    fresh: Prepared, unpruned: list[Reference | None]
) -> None:
    run = train(experiment(), fresh, "base", 1)
    assert everything(run) == unpruned
    assert left(learned(run)) == ["metrics", "weights", "metrics", "all"]
    assert left([fresh.warm_start]) == ["all"]
    with stage_calls() as again:
        assert everything(train(experiment(), fresh, "base", 1)) == unpruned
    assert computed(again) == []
    assert left(learned(run)) == ["metrics", "weights", "metrics", "all"]


def test_a_repeat_with_an_adapter_makes_no_pruned_adapter_again(
    fresh: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    adapted = experiment(**KINDS["adapter"])
    run = train(adapted, fresh, "base", 1)
    kept = left(learned(run))
    assert "metrics" in kept, "some adapters were pruned"
    MODELS.forget()
    with stage_calls() as again:
        assert everything(train(adapted, fresh, "base", 1)) == everything(run)
    assert computed(again) == [] and left(learned(run)) == kept
    assert "made again" not in caplog.text


class Interrupted(BaseException):
    """What ends a run from outside, wherever it is."""


def test_a_run_that_is_interrupted_goes_on_from_what_it_has_kept(
    fresh: Prepared, unpruned: list[Reference | None], caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(run: Run, iteration: Iteration) -> None:
        if iteration.number == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(experiment(), fresh, "base", 1, interrupted)
    MODELS.forget()
    assert everything(train(experiment(), fresh, "base", 1)) == unpruned
    assert "made again" not in caplog.text


def test_another_variant_with_the_same_policies_finds_them_though_they_were_pruned(
    fresh: Prepared, unpruned: list[Reference | None]
) -> None:
    train(experiment(), fresh, "base", 1)
    MODELS.forget()
    with stage_calls() as calls:
        often = train(experiment(**{"evaluation.every": 1}), fresh, "often", 1)
    assert set(computed(calls)) == {"evaluate"}
    assert [iteration.policy for iteration in often.iterations] == unpruned[2:-1:7]
    assert left(learned(often)) == ["weights", "weights", "weights", "all"]


def test_an_alarm_goes_back_to_a_policy_that_the_run_has_kept(
    fresh: Prepared, prepared: tuple[Prepared, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**AWAY_FROM_THE_START, **ADVANTAGES}
    pruned = train(experiment(**settings), fresh, "base", 1)
    assert [iteration.returned is not None for iteration in pruned.iterations] == [False, True, False, True]
    back = pruned.iterations[1].returned
    assert back is not None and left([back]) == ["all"]
    assert left([pruned.iterations[1].policy]) == ["metrics"]
    shutil.copytree(prepared[1], tmp_path / "unpruned")
    monkeypatch.setenv("TURNWISE_HOME", str(tmp_path / "unpruned"))
    assert everything(train(experiment(**settings, **KEEP_ALL), fresh, "base", 1)) == everything(pruned)


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_policy_in_the_middle_comes_back_to_the_same_digest(settings: dict[str, Any], fresh: Prepared) -> None:
    chosen = experiment(**{"optimization.iterations": 3, **settings})
    run = train(chosen, fresh, "base", 1)
    store = default_store()
    for reference in learned(run):
        store.prune(reference, files_to_prune(reference.kind, Keep.METRICS))
    MODELS.forget()
    middle, gone = run.iterations[1].policy, store.pruned(run.iterations[0].policy)
    assert any(name.startswith(WEIGHTS) for name in gone)
    with pytest.raises(ArtifactError, match="TW-pruned"):
        store.folder(middle, MODEL_FILES)
    folder = opened(middle, MODEL_FILES)
    assert has_adapter(folder) != (folder / "model.safetensors").is_file()
    assert not any(name.startswith(WEIGHTS) for name in store.pruned(middle))
    for reference in (middle, run.iterations[1].critic):
        if reference is not None:
            opened(reference)
            assert store.pruned(reference) == []
    for reference in learned(run):
        store.verify(reference)
    first = run.iterations[0].policy
    assert store.pruned(first) == gone, "what was made on the way is pruned again"
    with stage_calls() as again:
        assert everything(train(chosen, fresh, "base", 1)) == everything(run)
    assert computed(again) == []
