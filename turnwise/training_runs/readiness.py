"""Whether this machine can run an experiment, as far as it is seen before Prefect's server starts.

Nothing is imported that takes seconds. What only torch can tell is asked of it later, before the first stage.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.agent.formats import make_format
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment
from turnwise.policy.device_memory import has_card
from turnwise.policy.gguf_sources import gguf_configuration, is_gguf
from turnwise.policy.pretrained import asks_hub, model_directory, pretrained, pretrained_folder
from turnwise.store.run_environment import processor_computes_bfloat16
from turnwise.training_runs.memory import require_memory


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
                "the device cuda must be there; this machine has no card with a driver: set compute.device to cpu",
                "TW-no-cuda",
            )
        return
    if compute.precision == "bfloat16" and processor_computes_bfloat16() is False:
        raise ConfigurationError(
            "precision bfloat16 needs a device with instructions for it; this machine's cpu has none, and would be "
            "slower than in float32: set compute.precision to float32",
            "TW-no-bfloat",
        )


def require_model(experiment: Experiment, *, thoroughly: bool = True, converted: Path | None = None) -> None:
    """Raise ConfigurationError if `policy.model` is a published model that cannot be used here.

    It is downloaded first where it is on a hub. Without `thoroughly` it is judged by its files alone, without the
    seconds that importing transformers takes, and a model that is not on this machine is not judged. Of a GGUF only the
    sizes are, until it is `converted`: the folder that it then is in.
    """
    from turnwise.policy.published import ModelUse, require_readable, require_sizes, require_usable

    model, compute = experiment.policy.model, experiment.compute
    use = ModelUse(
        compute.engine,
        experiment.agent.context_tokens,
        compute.tensor_parallel,
        experiment.policy.chat_template_kwargs,
        make_format(experiment.agent.format, experiment.made_world).functions,
    )
    if is_gguf(model):
        require_sizes(gguf_configuration(model), model, use)
        folder = converted
    elif thoroughly:
        published = pretrained(experiment.policy)
        folder = None if published is None else pretrained_folder(published)
    else:
        folder = model_directory(model)
    if folder is None:
        return
    (require_usable if thoroughly else require_readable)(folder, use)


def require_device(compute: Compute) -> None:
    """Raise ConfigurationError if this machine lacks the device or precision that the learner needs."""
    plain = (compute.device, compute.precision, compute.compiled) == ("cpu", "float32", False)
    if plain and compute.moments != "8-bit":
        return  # every machine supports this, and a fully cached run need not import torch
    from turnwise.policy.model import require_cards, require_device

    require_device(LearnerParameters(compute=compute).model, compute.device)
    if compute.device == "cuda":
        require_cards(compute.cards)
