"""Probe: measures with models how far a batch is from the warm start, and whether thoughts depend on their prompts.

It costs forward passes, counted by the metric `scored_tokens`, so it runs only every few iterations, on a sample.
"""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.models_in_memory import SCORING, log_probabilities, reference_log_probabilities
from tasks.orchestration.deferred import task
from tasks.playing import frame_of
from tasks.rollout.in_memory import trajectories_of
from turnwise.data.arrays import Ragged, SequenceBatch, Sequences
from turnwise.health.probe import ProbeParameters, probe_batch
from turnwise.store import Reference, default_store


@task(name="probe", task_run_name="{label}: probe", retries=1)
@depends_on(kernel=(*SCORING, "turnwise.health.probe", "turnwise.policy.function_frame"), writes="probe 1")
def probe(
    parameters: ProbeParameters,
    *,
    policy: Reference,
    warm_start: Reference,
    rollout: Reference,
    tokenizer: Reference,
    label: str = "probe",
) -> Reference:
    """Compute the monitors that need models, as metrics: see `turnwise.health.monitors`.

    `policy` is the behaviour policy of the rollout.
    """
    loaded, temperature, tokens = parameters.learner, parameters.temperature, parameters.micro_batch_tokens

    def by_warm_start(sequences: SequenceBatch) -> Ragged:
        return reference_log_probabilities(warm_start, loaded, policy, sequences, temperature, tokens)

    def by_policy(sequences: Sequences) -> Ragged:
        return log_probabilities(policy, loaded, sequences, temperature, tokens)

    with default_store().write("probe") as draft:
        decode = frame_of(tokenizer).decode
        draft.metrics.update(probe_batch(parameters, trajectories_of(rollout), decode, by_warm_start, by_policy))
    return draft.reference
