"""What the store holds already of the policy that reinforcement starts from: nothing is computed to know it."""

from __future__ import annotations

from flows.health import signal_at_start
from flows.prepare import Prepared, prepare_materials, prepare_policy
from flows.sampling import evaluation, evaluation_at_horizon, first_turn_limit
from tasks.stage import NotRecorded, recorded_only
from turnwise.experiment import Experiment
from turnwise.health.initial_signal import InitialSignal
from turnwise.policy.pretrained import asks_hub
from turnwise.store import Reference
from turnwise.store.default import nothing_is_stored


def recorded_signals(experiment: Experiment) -> dict[InitialSignal, list[str]] | None:
    """What the variants could learn from at first, each with the names of the variants of which it holds.

    None where the preparation or an evaluation of the policy that they start from is not in the store, or where one
    would have to ask a hub for that policy.
    """
    if nothing_is_stored():
        return None
    if asks_hub(experiment.policy.model):
        return None
    found: dict[InitialSignal, list[str]] = {}
    try:
        with recorded_only():
            prepared = prepare_policy(experiment, prepare_materials(experiment))
            for variant in experiment.ablation.variants:
                own = experiment.variant(variant)
                if (signal := signal_at_start(own, _start(own, prepared))) is not None:
                    found.setdefault(signal, []).append(variant)
    except NotRecorded:
        return None
    return found


def _start(experiment: Experiment, prepared: Prepared) -> Reference:
    """The evaluation of the first policy on the validation task set, at the turn limit of the first iteration."""
    policy, limit = prepared.warm_start, first_turn_limit(experiment)
    at_horizon = evaluation_at_horizon("the start", experiment, "validation", prepared, policy, limit)
    return at_horizon or evaluation("the start", experiment, "validation", prepared, policy)
