"""Experiments, loaded from files and from values: what a command line or a notebook describes, ready to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flows.runtime.server import keep_finished_runs
from turnwise.config import overlays
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.experiment import load as load_experiment
from turnwise.project import project_root
from turnwise.store.default import use_storage

PARAMETERS_FILE = "params.yaml"
WITHOUT_VLLM = "vLLM is not installed: the embedded engine samples (compute.engine: embedded)."


def load(
    *layers: str | os.PathLike[str] | Mapping[str, Any],
    parameters: str | os.PathLike[str] = PARAMETERS_FILE,
    settings: Mapping[str, Any] | Iterable[str] = (),
    to_plan: bool = False,
    tell: Callable[[str], None] = print,
) -> Experiment:
    """The experiment of the project's parameters, with overlays and settings, checked as a whole.

    Where vLLM is not installed and nothing but the parameters file asks for it, the embedded engine takes its place,
    and `tell` is called with a line that says so. Prefect's local server, if it is started, lists finished runs as long
    as the experiment says. From here on this process, and those that it starts, use the
    store that the experiment names.

    Args:
        layers: overlays, laid over the parameters in order: files, or mappings of sections as a file would hold them.
        parameters: the parameters file, from the project's folder: the nearest one upward that has a params.yaml.
        settings: single values, by dotted key (`{"optimization.iterations": 10}`) or as `KEY=VALUE`.
        to_plan: it is counted and not run, so that files which its world reads need not be there.

    Raises:
        ConfigurationError: the experiment contradicts itself, or is to run and asks for vLLM itself where it is not
            installed.
    """
    path = project_root() / parameters
    overlay_layers: list[overlays.Overlay] = [layer if isinstance(layer, Mapping) else Path(layer) for layer in layers]
    values = settings if isinstance(settings, Mapping) else list(settings)
    experiment = load_experiment(path, overlay_layers, values, to_plan=to_plan)
    keep_finished_runs(experiment.storage.keep_finished_days)
    use_storage(experiment.storage.url, experiment.storage.cache_gigabytes)
    if experiment.compute.engine != "vllm" or find_spec("vllm") is not None:
        return experiment
    engine_setting = overlays.layered(path, overlay_layers, values).written(("compute", "engine"))
    if experiment.compute.device != "cpu" or (engine_setting is not None and engine_setting.layer > 1):
        if to_plan:  # for another machine, as the papers' experiments are on a laptop
            return experiment
        raise ConfigurationError(
            "compute.engine: vllm needs vLLM, which is not installed: set it to embedded", "TW-missing-package"
        )
    tell(WITHOUT_VLLM)
    instead: overlays.Overlay = {"compute": {"engine": "embedded"}}
    return load_experiment(path, [*overlay_layers, instead], values, to_plan=to_plan)
