"""What `turnwise what-if` computes of a policy that retention has left less than everything of."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.what_if import _retained_files
from turnwise.store import default_store
from turnwise.store.retention import Keep, files_to_prune
from turnwise.training_runs.state import Iteration, Models

PLAIN = ("config.json", "model.safetensors", "optimizer/adamw.safetensors")
ON_TRUNK = (*PLAIN, "critic/value_head.safetensors", "critic/adamw.safetensors")


@pytest.mark.parametrize(("files", "kept"), [(PLAIN, "weights"), (ON_TRUNK, "nothing")])
def test_no_gradient_is_computed_without_the_head_of_a_critic_on_the_policys_trunk(
    turnwise_home: Path, files: tuple[str, ...], kept: str
) -> None:
    with default_store().write("policy") as draft:
        for name in files:
            (draft.folder / name).parent.mkdir(exist_ok=True)
            (draft.folder / name).write_text(name)
    iteration = Iteration(1, Models(draft.reference, None), None)
    assert _retained_files(iteration) == "everything"
    default_store().prune(draft.reference, files_to_prune("policy", Keep.WEIGHTS))
    assert _retained_files(iteration) == kept, "a new head gives another gradient"
