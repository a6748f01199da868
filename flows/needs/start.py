"""What a finished ablation says of the policy that reinforcement starts from: nothing is computed to know it."""

from __future__ import annotations

from flows.recording.finished import finished_ablation
from turnwise.credit import estimator_of
from turnwise.data.evaluations import SAMPLED, read_evaluation
from turnwise.experiment import Experiment
from turnwise.health.initial_signal import InitialSignal, initial_signal
from turnwise.policy.pretrained import asks_hub
from turnwise.store import Reference
from turnwise.store.default import nothing_is_stored


def recorded_signals(experiment: Experiment) -> dict[InitialSignal, list[str]] | None:
    """What the variants could learn from at first, each with the names of the variants of which it holds.

    None where the ablation has not been finished with these parameters, or where one would have to ask a hub for the
    policy that it starts from.
    """
    if nothing_is_stored():
        return None
    if asks_hub(experiment.policy.model):
        return None
    finished = finished_ablation(experiment)
    if finished is None:
        return None
    signals: dict[InitialSignal, list[str]] = {}
    for run in finished.outcome(experiment).runs:
        if run.seed == experiment.ablation.seeds[0]:
            signal = signal_at_start(experiment.variant(run.variant), run.start_at_horizon or run.start)
            if signal is not None:
                signals.setdefault(signal, []).append(run.variant)
    return signals


def signal_at_start(experiment: Experiment, evaluation: Reference) -> InitialSignal | None:
    """What a variant could learn from at first, by an evaluation of the policy that its reinforcement starts from.

    None where no sampled episode came to its end.
    """
    trajectories = read_evaluation(evaluation, SAMPLED)
    if not trajectories:
        return None
    # Rejection-sampling fine-tuning imitates the best of all episodes.
    compared = experiment.optimization.method == "reinforcement" and estimator_of(experiment.credit.estimator).grouped
    return initial_signal(trajectories, experiment.rewards, experiment.rollout, grouped=compared)
