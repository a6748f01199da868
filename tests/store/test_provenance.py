"""From an artifact back to what it came from, in a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnwise.errors import ArtifactError
from turnwise.store import Reference, Store
from turnwise.store.provenance import Ancestor, ancestry, codes, matching_artifacts, platforms


def made(
    store: Store, kind: str, stage: str, inputs: dict[str, Any], commit: str = "c1", **parameters: Any
) -> Reference:
    """An artifact with its lineage record."""
    with store.write(kind) as draft:
        (draft.folder / "content").write_text(f"{stage} {inputs} {parameters}")
    record = {"stage": stage, "inputs": inputs, "parameters": parameters, "platform": {"python": "3.11"}}
    store.record_lineage(draft.reference, "key", {**record, "commit": commit, "uncommitted": "none"})
    return draft.reference


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def policies(store: Store) -> list[Reference]:
    """A warm start and three updates, each from a rollout of the policy before it; the last with newer code."""
    task_set = made(store, "task_set", "task_set", {})
    found = [made(store, "policy", "warm_start", {"task_set": str(task_set)})]
    for number in (1, 2, 3):
        policy = str(found[-1])
        rollout = made(store, "rollout", "rollout", {"policy": policy, "task_set": str(task_set)}, iteration=number)
        inputs = {"policy": policy, "rollout": str(rollout), "values": None}
        found.append(made(store, "policy", "update", inputs, commit="c2" if number == 3 else "c1", iteration=number))
    return found


def lines(tree: Ancestor, depth: int = 0) -> list[str]:
    return [f"{depth} {tree.line}", *(line for each in tree.inputs for line in lines(each, depth + 1))]


def test_a_chain_of_updates_is_told_once_and_nothing_twice(store: Store, policies: list[Reference]) -> None:
    tree = ancestry(store, policies[-1])
    start, rollout = tree.inputs
    assert (start.reference, len(tree.earlier)) == (policies[0], 2)
    assert [each["parameters"]["iteration"] for each in tree.earlier] == [2, 1]
    # The rollout was sampled by the policy before, which is part of the chain: its inputs are not listed again.
    sampled_by = next(each for each in rollout.inputs if each.reference.kind == "policy")
    assert (sampled_by.reference, sampled_by.expanded_elsewhere, sampled_by.inputs) == (policies[2], True, [])
    told = lines(tree)
    assert told[0] == f"0 policy/{policies[-1].digest[:12]} (update, iteration 3)"
    assert sum("task_set/" in line and "see there" not in line for line in told) == 1


def test_the_code_of_every_artifact_is_counted_also_of_those_in_the_chain(
    store: Store, policies: list[Reference]
) -> None:
    tree = ancestry(store, policies[-1])
    # c1: the task set, warm start, two updates, the last rollout; c2: the last update.
    assert [(code.commit, code.artifacts) for code in codes(tree)] == [("c1", 5), ("c2", 1)]
    assert len(platforms(tree)) == 1


def record_update(store: Store, before: Reference, after: Reference, key: str) -> None:
    """Record that an update made `after` from `before`."""
    record = {"stage": "update", "inputs": {"policy": str(before)}, "parameters": {"iteration": 9}, "platform": None}
    store.record_lineage(after, key, {**record, "commit": "c1", "uncommitted": "none"})


def test_an_update_that_moves_nothing_does_not_hide_how_its_policy_was_made(
    store: Store, policies: list[Reference]
) -> None:
    for policy in (policies[0], policies[1], policies[-1]):
        record_update(store, policy, policy, "a key that sorts before the first one's")
    record_update(store, policies[-1], policies[0], "b: back to the start, as well")
    tree = ancestry(store, policies[-1])
    assert (tree.inputs[0].reference, tree.inputs[0].line) == (
        policies[0],
        f"policy/{policies[0].digest[:12]} (warm_start, made in 3 ways)",
    )
    assert [each["parameters"]["iteration"] for each in tree.earlier] == [2, 1]


def test_of_a_policy_of_which_only_updates_that_move_nothing_are_recorded_the_making_is_not_known(store: Store) -> None:
    with store.write("policy") as draft:
        (draft.folder / "content").write_text("from elsewhere")
    record_update(store, draft.reference, draft.reference, "key")
    assert "not recorded how it was made" in ancestry(store, draft.reference).line


def test_an_artifact_whose_making_is_not_recorded_says_so(store: Store) -> None:
    with store.write("policy") as draft:
        (draft.folder / "content").write_text("from elsewhere")
    assert "not recorded how it was made" in ancestry(store, draft.reference).line


def test_an_artifact_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(ArtifactError, match="TW-no-artifact"):
        ancestry(store, Reference(kind="policy", digest="0" * 32))


def test_an_artifact_is_found_by_the_beginning_of_its_digest(store: Store, policies: list[Reference]) -> None:
    digest = policies[0].digest
    assert matching_artifacts(store, digest[:8]) == matching_artifacts(store, f"policy/{digest}") == [policies[0]]
    assert (
        matching_artifacts(store, digest[:3])
        == matching_artifacts(store, f"rollout/{digest[:8]}")
        == matching_artifacts(store, "mt-grpo/x")
        == []
    )
