"""Whether this machine can run an experiment, as far as it is seen before Prefect's server starts.

Nothing is imported that takes seconds. What only torch can tell is asked of it later, before the first stage.
"""

from __future__ import annotations

from flows.needs.fitting import require_memory
from turnwise.config.model_settings import Compute
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.device_memory import has_card
from turnwise.policy.pretrained import asks_hub
from turnwise.store.run_environment import platform

BFLOAT16_FLAGS = ("avx512_bf16", "amx_tile")
"""Features of an x86 processor with instructions for bfloat16, by which torch's kernels ask for it, too."""


def require_machine(experiment: Experiment, processes: int | None = None) -> None:
    """Raise ConfigurationError where this machine clearly lacks the device, the precision, or on a CPU the memory that
    the experiment needs.
    """
    require_precision(experiment.compute)
    if experiment.compute.device == "cpu" and not asks_hub(experiment.policy.model):
        require_memory(experiment, experiment.compute.runner.with_processes(processes).processes)


def require_precision(compute: Compute) -> None:
    """Raise ConfigurationError where this machine clearly lacks the device or the instructions for the precision."""
    if compute.device == "cuda":
        if not has_card():
            raise ConfigurationError(
                "the device cuda must be there; this machine has no card with a driver: set compute.device to cpu"
            )
        return
    flags = platform()["processor"]["flags"]
    if compute.precision == "bfloat16" and flags and not set(BFLOAT16_FLAGS).intersection(flags):
        raise ConfigurationError(
            "precision bfloat16 needs a device with instructions for it; this machine's cpu has none, and would be "
            "slower than in float32: set compute.precision to float32"
        )
