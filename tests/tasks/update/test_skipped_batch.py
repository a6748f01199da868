"""A batch without a signal is skipped; one whose advantages cancel within every turn has a signal."""

from __future__ import annotations

import numpy as np
import pytest
from stage_samples import Small, saved, tiny, trajectory, turn

from tasks.credit.credit import save_credit
from tasks.update.update import UpdateParameters, update
from turnwise.credit import CreditBatch, turn_means
from turnwise.data.arrays import Advantages, Ragged
from turnwise.data.trajectory import trajectory_arrays
from turnwise.store import Reference, default_store

TRAJECTORIES = [trajectory(0, replica, [turn(tokens=2), turn(tokens=2)]) for replica in range(2)]


def updated(small: Small, of_tokens: list[list[float]] | None, of_turns: list[list[float]]) -> Reference:
    """The policy after an update on two trajectories of two turns, each with a reply of two tokens."""
    batch = CreditBatch.of(trajectory_arrays(TRAJECTORIES), {})
    tokens = None if of_tokens is None else Ragged.of(of_tokens)
    turns = Ragged.of(of_turns) if tokens is None else turn_means(batch, tokens)
    with default_store().write("credit") as draft:
        save_credit(draft, batch, Advantages(np.arange(2), turns, tokens), trajectory_count=2)
    chosen = tiny(**{"optimization.maximum_mismatch": 100.0})
    parameters = UpdateParameters.of(chosen.optimization, chosen.compute, chosen.rollout.temperature, 1, 1)
    done: Reference = update.fn(parameters, policy=small.policy, rollout=saved(TRAJECTORIES), credit=draft.reference)
    return done


@pytest.mark.parametrize(
    ("of_tokens", "skipped"),
    [(None, 1.0), ([[0.0] * 4] * 2, 1.0), ([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, -0.5, 0.5]], 0.0)],
)
def test_a_batch_is_skipped_only_where_no_token_has_an_advantage(
    small: Small, of_tokens: list[list[float]] | None, skipped: float
) -> None:
    done = updated(small, of_tokens, [[0.0, 0.0]] * 2)
    assert default_store().metrics(done)["skipped"] == skipped
    weights = [default_store().folder(policy) / "model.safetensors" for policy in (small.policy, done)]
    assert (weights[0].read_bytes() == weights[1].read_bytes()) == bool(skipped)
