"""Health: the bookkeeping at the end of an iteration, from which the run knows how to go on.

The record (`turnwise.health.record`) is an artifact, so a resumed run continues from the same state. The flow reads the
turn limit from it and passes the limit, not the artifact, to the next rollout as a parameter: rollouts that differ only
in how their limit was arrived at are the same, and variants of an ablation share cached rollouts until their limits
diverge.

The probe measures with models how far a batch is from the warm start, and whether thoughts depend on their prompts. It
costs forward passes, counted by the metric `scored_tokens`, so it runs only every few iterations, on a sample.
"""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import SCORING, frame_of
from tasks.restoring import MODELS, opened, trajectories_of
from turnwise.agent.branching import from_first_turn
from turnwise.config.schema import Section
from turnwise.data.arrays import Ragged, SequenceBatch, Sequences
from turnwise.health.monitors import OF_PROBE, Values
from turnwise.health.probe import ProbeParameters, probe_batch
from turnwise.health.record import HEALTH, HealthParameters, HealthRecord, measure_iteration, record_health
from turnwise.plugins import MONITOR, plugin_modules
from turnwise.policy.adaptive_penalty import NEXT_COEFFICIENT
from turnwise.policy.model_files import POLICY
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients


def _plugin_code(parameters: HealthParameters) -> list[str]:
    return plugin_modules(MONITOR, parameters.added.values())


@task(name="health", task_run_name="{label}: health", retries=1)
@depends_on(
    kernel=("turnwise.agent.branching", "turnwise.health.record", "turnwise.policy.function_frame"),
    writes=HEALTH,
    code=_plugin_code,
    reads=lambda parameters: plugin_ingredients(_plugin_code(parameters)),
    platform_bound=False,
)
def health(
    parameters: HealthParameters,
    *,
    rollout: Reference,
    credit: Reference,
    tokenizer: Reference,
    policy: Reference | None,
    probe: Reference | None,
    previous: Reference | None,
    label: str = "health",
) -> Reference:
    """Compute the monitors of an iteration, judge them by the alarm rules, and set the next turn limit.

    `policy` is the result of the update, None where there was none; `probe` the measurements by models, None where the
    batch was not probed; `previous` the record of the iteration before. Metrics are those of `record_health`.
    """
    trajectories = trajectories_of(rollout)
    stage_metrics = _read_stage_metrics(credit, policy, probe)
    measurements = measure_iteration(parameters, trajectories, frame_of(tokenizer).end_tokens, stage_metrics)
    before = None if previous is None else read_health(previous)
    record, metrics = record_health(parameters, before, measurements, from_first_turn(trajectories, parameters.prompts))
    with default_store().write("health") as draft:
        record.write(draft.folder)
        draft.metrics.update(metrics)
    return draft.reference


def _read_stage_metrics(credit: Reference, policy: Reference | None, probe: Reference | None) -> Values:
    """The monitors that other stages have measured."""
    credit_metrics = default_store().metrics(credit)
    values = {"no_signal": float(credit_metrics["zero_variance_groups"] == credit_metrics["groups"])}
    update_metrics = {} if policy is None else default_store().metrics(policy)
    if "gradient_norm" in update_metrics:
        values["gradient_norm"] = update_metrics["gradient_norm"]
    probe_metrics = {} if probe is None else default_store().metrics(probe)
    return {**values, **{name: probe_metrics[name] for name in OF_PROBE if name in probe_metrics}}


class ReturnParameters(Section):
    """Returning has no parameters: it depends on its inputs alone."""


@task(name="return_to", task_run_name="{label}: return_to", retries=1)
@depends_on(kernel=(), writes=POLICY, platform_bound=False)
def return_to(
    parameters: ReturnParameters, *, policy: Reference, health: Reference, label: str = "return_to"
) -> Reference:
    """Copy the healthy policy with its optimizer's state into a new artifact that depends on the alarm.

    Its metrics say which iteration it sampled (`returned_to`) and how many returns there were (`returns`); the
    coefficient of an adapted penalty goes on with the policy that it belongs to.
    """
    alarm = read_health(health).alarm
    with default_store().write("policy") as draft:
        draft.begin_with(opened(policy))
        draft.metrics.update(returned_to=alarm.healthy, returns=alarm.returns)
        if (following := default_store().metrics(policy).get(NEXT_COEFFICIENT)) is not None:
            draft.metrics[NEXT_COEFFICIENT] = following
    return draft.reference


def read_health(reference: Reference) -> HealthRecord:
    """The record that an artifact `health` holds."""
    return HealthRecord.read(default_store().folder(reference))


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
    learner, temperature, tokens = parameters.learner, parameters.temperature, parameters.micro_batch_tokens

    def by_warm_start(sequences: SequenceBatch) -> Ragged:
        return MODELS.reference_log_probabilities(warm_start, learner, policy, sequences, temperature, tokens)

    def by_policy(sequences: Sequences) -> Ragged:
        return MODELS.log_probabilities(policy, learner, sequences, temperature, tokens)

    with default_store().write("probe") as draft:
        decode = frame_of(tokenizer).decode
        draft.metrics.update(probe_batch(parameters, trajectories_of(rollout), decode, by_warm_start, by_policy))
    return draft.reference
