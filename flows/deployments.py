"""The flows that prefect.yaml deploys; their parameters correspond to the command line's arguments.

Both are parsed into the same configuration model, `turnwise.experiment`. A mistake fails the run before any stage.
The comparison is a flow run within theirs, whose tags say what it is of: they are known once the parameters are read.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, runtime

from flows.ablation import comparison
from flows.recording.publish import AblationResult
from flows.runtime.flow_runs import run_flow
from flows.runtime.process_settings import prepare_process
from turnwise.experiment import Experiment, load, single
from turnwise.own_process import collect_rarely
from turnwise.project import project_root
from turnwise.store.default import use_storage


def _run_name() -> str:
    """The name of a flow run: its flow and parameters, written as on the command line."""
    given = runtime.flow_run.parameters
    settings = [f"{key}={value}" for key, value in (given["settings"] or {}).items()]
    chosen = [str(given[name]) for name in ("variant", "seed") if given.get(name) is not None]
    return " ".join([runtime.flow_run.flow_name, *(given["overlays"] or [given["parameters"]]), *chosen, *settings])


@flow(name="ablation", flow_run_name=_run_name)
def ablation(
    parameters: str = "params.yaml", overlays: list[str] | None = None, settings: dict[str, Any] | None = None
) -> str:
    """Compare the variants of a parameters file over its seeds. Returns the digest of all that was computed.

    Runs that were ended early count. Where a fault has left out runs, the flow run fails once the report is written.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        settings: single values by dotted key, e.g. `{"optimization.iterations": 5}`.
    """
    _begin()
    return _digest(run_flow(comparison, _load(parameters, overlays, settings)))


@flow(name="experiment", flow_run_name=_run_name)
def experiment(
    parameters: str = "params.yaml",
    overlays: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    variant: str | None = None,
    seed: int | None = None,
) -> str:
    """Train and test one variant with one seed. Returns the digest of all that was computed.

    Args:
        parameters: the parameters file, relative to the project's folder.
        overlays: files laid over it, in order.
        settings: single values by dotted key.
        variant: a name of the section `variants`; by default the parameters as they are.
        seed: by default the first of `ablation.seeds`.
    """
    _begin()
    return _digest(run_flow(comparison, single(_load(parameters, overlays, settings), variant, seed)))


def _digest(result: AblationResult) -> str:
    """The digest of a result. Raises TrainingEnded where a fault has left out runs."""
    result.require_whole()
    return result.digest


def _begin() -> None:
    """What a worker's process begins with, before anything large is imported."""
    collect_rarely()
    prepare_process()


def _load(parameters: str, overlays: list[str] | None, settings: dict[str, Any] | None) -> Experiment:
    root = project_root()
    chosen = load(root / parameters, [root / overlay for overlay in overlays or []], settings or {})
    use_storage(chosen.storage.url, chosen.storage.cache_gigabytes)
    return chosen
