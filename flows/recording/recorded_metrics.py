"""The metrics that MLflow gets of an iteration, each once; a name starts with its group and may end with its unit.

    rollout, selection, credit, update, critic     the metrics of that stage
    monitor, alarm, horizon                        the metrics of the stage `health`, which name their group
    validation, test, and both with _at_horizon    on that task set, `greedy` and `sampled`
    seconds, speed, memory, probe                  the cost

A number without a unit in its name is a count, a share or a mean of the world's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.run_state import Iteration
from turnwise.store import Reference, default_store

UNITS = {
    "update/approximate_kl": "nats",
    "update/entropy": "nats",
    "update/mismatch": "nats",
    "update/mismatch_maximum": "nats",
    "monitor/entropy": "nats",
    "monitor/kl_warm_start": "nats",
    "monitor/mutual_information": "nats",
}
"""Units of metrics whose own names do not state them."""
MADE_BY = {
    "rollout": "rollout",
    "selection": "selection",
    "credit": "credit",
    "monitor": "health",
    "alarm": "health",
    "horizon": "health",
    "update": "policy",
    "critic": "critic",
    "validation": "evaluation",
    "validation_at_horizon": "evaluation_at_horizon",
}
"""The artifact of an iteration that each group of metrics is read from."""
STAGES = ("rollout", "selection", "credit")
"""The groups whose metrics are taken from the artifacts unchanged."""
ALREADY_TOLD = frozenset({"monitor/success", "monitor/gradient_norm"})
"""Left out: the same numbers as rollout/success and update/gradient_norm."""


def metrics_of(iteration: Iteration) -> dict[str, float]:
    """All metrics of one iteration but those of the validation."""
    store = default_store()
    told: dict[str, float] = {}
    for group in STAGES:
        made: Reference | None = getattr(iteration, MADE_BY[group])
        told |= {} if made is None else _under(group, store.metrics(made))
    told |= store.metrics(iteration.health)
    updated = _updated(iteration)
    told |= _under("update", updated)
    told |= _under("critic", _of_critic(iteration))
    return {**_named(told), **_costs(iteration, bool(updated))}


def evaluation_metrics(panel: str, full: Reference, at_horizon: Reference | None) -> dict[str, float]:
    """The metrics on a task set at the world's turn limit and, if given, at the training limit.

    Success comes first: MLflow's compare page plots the metric that was recorded first.
    """
    at_limit = {} if at_horizon is None else told_of(f"{panel}_at_horizon", at_horizon)
    told = {**told_of(panel, full), **at_limit}
    return dict(sorted(told.items(), key=lambda metric: metric[0] != f"{panel}/sampled/success"))


def told_of(group: str, made: Reference) -> dict[str, float]:
    """The metrics of one artifact, named as in a group."""
    metrics = default_store().metrics(made)
    return _named(metrics if MADE_BY.get(group) == "health" else _under(group, metrics))


def evaluation_seconds(iteration: Iteration) -> dict[str, float]:
    """The seconds that the iteration's evaluations took."""
    made = [each for each in (iteration.evaluation, iteration.evaluation_at_horizon) if each is not None]
    return {"seconds/evaluation": sum(default_store().clock(each).get("seconds", 0.0) for each in made)}


def _costs(iteration: Iteration, updated: bool) -> dict[str, float]:
    """The cost of an iteration: seconds, tokens per second and bytes, as measured on the machine that computed it."""
    store = default_store()
    sampled = store.clock(iteration.rollout)
    costs = {
        "seconds/sampling": sampled.get("sampling_seconds", 0.0),
        "seconds/worlds": sampled.get("world_seconds", 0.0),
        "seconds/credit": store.clock(iteration.credit).get("seconds", 0.0),
    }
    if sampled.get("sampling_seconds"):
        costs["speed/sampled_tokens_per_second"] = sampled["sampled_tokens"] / sampled["sampling_seconds"]
    if updated:
        clock = store.clock(iteration.policy)
        costs["seconds/update"] = clock.get("seconds", 0.0)
        for name, said in (
            ("speed/trained_tokens_per_second", "trained_tokens_per_second"),
            ("memory/update_peak_bytes", "peak_memory_bytes"),
        ):
            if said in clock:
                costs[name] = clock[said]
    costs["seconds/health"] = store.clock(iteration.health).get("seconds", 0.0)
    if iteration.probe is not None:
        costs["seconds/probe"] = store.clock(iteration.probe).get("seconds", 0.0)
        costs["probe/scored_tokens"] = store.metrics(iteration.probe)["scored_tokens"]
    return costs


def _updated(iteration: Iteration) -> dict[str, float]:
    """The update's metrics; empty while a critic warms up: the policy is then an earlier one, or holds the critic."""
    metrics = default_store().metrics(iteration.policy)
    return metrics if "skipped" in metrics else {}


def _of_critic(iteration: Iteration) -> dict[str, float]:
    """The critic's metrics; empty if the update reports them (on the policy's trunk, after the warm-up)."""
    if iteration.critic is None or (iteration.critic == iteration.policy and _updated(iteration)):
        return {}
    return default_store().metrics(iteration.critic)


def _under(group: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in metrics.items()}


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    """Append units to names, and leave out the metrics that are recorded under another name."""
    return {
        f"{name}_{UNITS[name]}" if name in UNITS else name: value
        for name, value in metrics.items()
        if name not in ALREADY_TOLD
    }
