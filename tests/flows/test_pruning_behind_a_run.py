"""What a run prunes as it goes: the same as by the whole chain, at a cost that does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.train import _prune_behind
from turnwise.config.model_settings import Adapter
from turnwise.config.schema import Storage
from turnwise.experiment import load
from turnwise.store import Reference
from turnwise.store.retention import Keep, RetentionEntry, kept
from turnwise.training_runs.state import Iteration, Models, Prepared, Run

pytestmark = pytest.mark.usefixtures("turnwise_home")

EXPERIMENT = load(Path(__file__).parents[2] / "tests" / "parameters.yaml")


def reference(kind: str, number: int) -> Reference:
    return Reference(kind=kind, digest=f"{number:032x}")


def run_of(storage: Storage, policies: Sequence[tuple[int, bool]]) -> tuple[Run, list[int]]:
    """A run that has made these policies, each with whether it was evaluated; and the longest chain it looked at."""
    start = reference("policy", 0)
    names = Prepared.__dataclass_fields__
    prepared = Prepared(**dict.fromkeys(names, start))
    run = Run("grpo", 1, EXPERIMENT.model_copy(update={"storage": storage}), prepared, Models(start, None), start)
    lengths = []
    for number, (policy, evaluated) in enumerate(policies, start=1):
        made = {"policy": reference("policy", policy)}
        if evaluated:
            made["evaluation"] = reference("evaluation", number)
        run.iterations.append(Iteration(number, run.models, None, made))
        run.models = Models(made["policy"], None)
        _prune_behind(run)
        lengths.append(len(run.chains["policy"]))
    return run, lengths


STORAGES = st.builds(
    Storage,
    keep_last=st.integers(1, 3) | st.none(),
    keep_evaluated=st.booleans(),
    keep_best=st.just(0),
    keep_optimizer=st.integers(1, 2) | st.none(),
    keep_rollouts=st.none(),
)


@given(STORAGES, st.lists(st.booleans(), min_size=1, max_size=20))
def test_a_run_keeps_of_each_policy_what_the_whole_chain_says(storage: Storage, evaluated: list[bool]) -> None:
    run, _ = run_of(storage, list(enumerate(evaluated, start=1)))
    chain = [RetentionEntry(each.policy, each.evaluation) for each in run.iterations]
    assert run.retention == kept(chain, storage, lambda evaluation: 0.0, [run.models.policy])


def test_an_evaluated_policy_that_a_skipped_update_repeats_stays_evaluated() -> None:
    storage = Storage(keep_last=1, keep_evaluated=True, keep_best=0, keep_optimizer=1, keep_rollouts=None)
    run, _ = run_of(storage, [(1, True), (1, False), (2, False), (3, False), (4, False)])
    assert run.retention[reference("policy", 1)] == Keep.WEIGHTS
    assert run.retention[reference("policy", 2)] == Keep.METRICS


def test_what_an_adapter_belongs_to_keeps_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    adapted = EXPERIMENT.optimization.model_copy(update={"adapter": Adapter(rank=2, alpha=4)})
    monkeypatch.setattr(f"{__name__}.EXPERIMENT", EXPERIMENT.model_copy(update={"optimization": adapted}))
    monkeypatch.setattr("flows.train.base_reference", lambda policy: reference("policy", 2))
    storage = Storage(keep_last=1, keep_evaluated=True, keep_best=0, keep_optimizer=1, keep_rollouts=None)
    run, _ = run_of(storage, [(number, False) for number in range(1, 7)])
    kept_now = {number: run.retention[reference("policy", number)] for number in range(1, 7)}
    assert kept_now == {2: Keep.WEIGHTS, 6: Keep.EVERYTHING, **dict.fromkeys((1, 3, 4, 5), Keep.METRICS)}


def test_a_late_iteration_looks_at_as_many_policies_as_an_early_one() -> None:
    storage = Storage(keep_last=1, keep_evaluated=True, keep_best=0, keep_optimizer=1, keep_rollouts=None)
    _, lengths = run_of(storage, [(number, number % 10 == 0) for number in range(1, 200)])
    assert set(lengths) == {1}
