"""What of a chain stays, by the section `storage`, and that a store's lineage gives the same answer as a run would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.config.schema import Storage
from turnwise.experiment import load
from turnwise.project import project_root
from turnwise.store import Reference, Store
from turnwise.store.retention import Keep, RetentionEntry, files_to_prune, kept, removals
from turnwise.training_runs.iteration_stages import replaced_inputs

DEFAULTS = load(project_root() / "params.yaml").storage
M, W, E = Keep.METRICS, Keep.WEIGHTS, Keep.EVERYTHING


def named(number: int, kind: str = "policy") -> Reference:
    return Reference(kind=kind, digest=f"{number:032x}")


SUCCESSES = {named(2, "evaluation"): 0.5, named(4, "evaluation"): 0.9, named(6, "evaluation"): 0.5}
CHAIN = [RetentionEntry(named(n), named(n, "evaluation") if n in (2, 4, 6) else None) for n in range(1, 8)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [M, W, M, W, M, W, E]),
        ({"keep_last": 3}, [M, W, M, W, W, W, E]),
        ({"keep_last": None}, [W, W, W, W, W, W, E]),
        ({"keep_optimizer": 2}, [M, W, M, W, M, E, E]),
        ({"keep_optimizer": None}, [E, E, E, E, E, E, E]),
        ({"keep_evaluated": False}, [M, M, M, M, M, M, E]),
        ({"keep_evaluated": False, "keep_best": 1}, [M, M, M, W, M, M, E]),
        ({"keep_evaluated": False, "keep_best": 2}, [M, M, M, W, M, W, E]),
    ],
)
def test_what_stays_of_a_chain(settings: dict[str, Any], expected: list[Keep]) -> None:
    storage = DEFAULTS.model_copy(update=settings)
    assert list(kept(CHAIN, storage, SUCCESSES.__getitem__).values()) == expected


def test_what_a_run_may_go_back_to_stays_whole() -> None:
    assert kept(CHAIN, DEFAULTS, SUCCESSES.__getitem__, [named(3)])[named(3)] == E


def test_of_a_policy_that_is_yet_to_sample_the_weights_stay() -> None:
    found = kept(CHAIN, DEFAULTS, SUCCESSES.__getitem__, weights=[named(3), named(7)])
    assert (found[named(3)], found[named(7)]) == (W, E)


def test_a_policy_that_stands_twice_in_its_chain_stays_as_its_last_place_says() -> None:
    chain = [*CHAIN, RetentionEntry(named(1))]
    assert kept(chain, DEFAULTS, SUCCESSES.__getitem__)[named(1)] == E


def test_nothing_is_ever_pruned_of_other_kinds_and_of_what_stays_whole() -> None:
    assert files_to_prune("tokenizer", M) == () == files_to_prune("evaluation", M)
    assert files_to_prune("policy", E) == () == files_to_prune("critic", E)


class Home:
    """A store as runs leave it, without the runs."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.number = 0

    def made(self, kind: str, stage: str, parameters: dict[str, Any] | None = None, **inputs: Any) -> Reference:
        self.number += 1
        with self.store.write(kind) as draft:
            (draft.folder / "optimizer").mkdir()
            for name in ("model.safetensors", "optimizer/adamw.safetensors", "turns.parquet", "config.json"):
                (draft.folder / name).write_text(str(self.number))
        record = {
            "stage": stage,
            "parameters": parameters or {},
            "inputs": {name: str(reference) for name, reference in inputs.items()},
        }
        self.store.record_lineage(draft.reference, "key", record)
        return draft.reference

    def run(self, start: Reference, iterations: int, evaluated: int | None = None) -> list[Reference]:
        """Its policies."""
        made = []
        for number in range(1, iterations + 1):
            rollout = self.made("rollout", "rollout", policy=start)
            start = self.made("policy", "update", policy=start, rollout=rollout)
            made.append(start)
            if number == evaluated:
                self.made("evaluation", "evaluate", {"split": "validation"}, policy=start)
        return made

    def left(self, references: list[Reference]) -> list[Keep]:
        gone = [self.store.pruned(each) for each in references]
        return [M if "model.safetensors" in each else W if each else E for each in gone]

    def prune(self, storage: Storage = DEFAULTS) -> int:
        found = removals(self.store, storage, lambda evaluation: 0.0, replaced_inputs())
        freed = sum(self.store.prune(each.reference, each.files) for each in found)
        assert freed == sum(each.bytes for each in found)
        return freed


def test_of_a_home_without_pruning_the_lineage_tells_what_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    initial = home.made("policy", "initial_policy")
    warm_start = home.made("policy", "warm_start", policy=initial)
    given = home.made("policy", "given")
    one, other = home.run(warm_start, 4, evaluated=2), home.run(warm_start, 3)
    branch = home.run(one[0], 2)
    assert home.prune() > 0
    assert home.left(one) == [M, W, M, E]
    assert home.left(other) == [M, M, E]
    assert home.left(branch) == [M, E], "a run that began like another has a last policy of its own"
    assert home.left([initial, warm_start, given]) == [E, E, E]
    assert home.prune() == 0


def test_a_critic_has_a_chain_of_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path)
    warm_start = home.made("policy", "warm_start")
    critics = [home.made("critic", "initial_critic", policy=warm_start)]
    for _ in range(3):
        critics.append(home.made("critic", "learn_values", critic=critics[-1]))
    home.prune()
    assert home.left(critics) == [M, M, M, E]


def test_what_an_alarm_left_behind_is_not_the_last_of_a_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    policies = home.run(home.made("policy", "warm_start"), 3)
    health = home.made("health", "health", policy=policies[2])
    returned = home.made("policy", "return_to", policy=policies[1], health=health)
    home.prune()
    assert home.left([*policies, returned]) == [M, M, M, E]


def test_rollouts_are_pruned_where_that_is_asked_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run(home.made("policy", "warm_start"), 3)
    rollouts = [Reference(kind="rollout", digest=path.parent.name) for path in tmp_path.glob("rollout/*/manifest.json")]
    home.prune()
    assert not any(map(home.store.pruned, rollouts))
    home.prune(DEFAULTS.model_copy(update={"keep_rollouts": 1}))
    assert sorted(bool(home.store.pruned(each)) for each in rollouts) == [False, True, True]
