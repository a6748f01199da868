"""Monitors: the health of training from an iteration's batch, compared with all iterations before it."""

from __future__ import annotations

import json

from tasks.playing import frame_of
from tasks.stage import stage
from turnwise.config.schema import RewardSection, Section
from turnwise.credit.rewards import weighted_return
from turnwise.data.trajectory_files import read_trajectories
from turnwise.health.monitors import OF_PROBE, Values, compare, measure
from turnwise.store import Reference, default_store

HISTORY_FILE = "history.json"


class MonitorParameters(Section):
    """The parameters of the monitors."""

    rewards: dict[str, RewardSection]
    start: int
    window: int
    n_gram: int


@stage("monitor", platform_bound=False)
def monitor(
    parameters: MonitorParameters,
    *,
    rollout: Reference,
    credit: Reference,
    tokenizer: Reference,
    policy: Reference | None,
    probe: Reference | None,
    previous: Reference | None,
) -> Reference:
    """Compute the monitors of one iteration as metrics; `history.json` holds those of all iterations so far.

    `policy` is the result of the update, None where there was none; `previous` the monitors of the iteration before;
    `probe` the measurements by models, None where the batch was not probed.
    """
    trajectories = read_trajectories(default_store().folder(rollout))
    totals = [weighted_return(trajectory, parameters.rewards) for trajectory in trajectories]
    values = measure(trajectories, totals, end_tokens=frame_of(tokenizer).end_tokens, n_gram=parameters.n_gram)
    credited = default_store().metrics(credit)
    values["no_signal"] = float(credited["zero_variance_groups"] == credited["groups"])
    updated = {} if policy is None else default_store().metrics(policy)
    if "gradient_norm" in updated:
        values["gradient_norm"] = updated["gradient_norm"]
    probed = {} if probe is None else default_store().metrics(probe)
    values.update({name: probed[name] for name in OF_PROBE if name in probed})
    history = [*([] if previous is None else read_history(previous)), values]
    values.update(compare(history, start=parameters.start, window=parameters.window))
    with default_store().write("monitors") as draft:
        (draft.folder / HISTORY_FILE).write_text(json.dumps(history, indent=1))
        draft.metrics.update(values)
    return draft.reference


def read_history(monitors: Reference) -> list[Values]:
    """The monitors of every iteration up to and including this one, in order."""
    history: list[Values] = json.loads((default_store().folder(monitors) / HISTORY_FILE).read_text())
    return history
