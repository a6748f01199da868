"""First steps: what several updates would do to one policy on one rollout, compared, without a next policy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import TRAINING, asking_code, hindsight_reads
from tasks.restoring import MODELS, opened
from tasks.update.update import UpdateParameters, batch_of
from turnwise.config.schema import Section
from turnwise.policy.model_files import MODEL_FILES
from turnwise.store import Reference, default_store
from turnwise.store.artifacts import EVERYTHING

FIRST_STEPS = "first steps 1"
"""The layout of this file. It is in the cache key of who writes it: a changed layout gets another number."""
FIRST_STEPS_FILE = "first_steps.json"


class FirstStepsParameters(Section):
    """The parameters of the updates that are compared, by name."""

    updates: dict[str, UpdateParameters]
    taken: bool
    """Whether the step is taken, for which the policy's optimizer state is needed."""


@dataclass(frozen=True)
class FirstSteps:
    """What the updates would do, by their names."""

    metrics: dict[str, dict[str, float] | None]
    """As `turnwise.policy.learner.first_step` has them; None where nothing in the batch has a gradient."""
    cosines: dict[str, float | None]
    """The cosine of the angle between the first update's gradient and each other's; None where one of them is 0."""


@task(name="first_steps", task_run_name="{label}: first steps", retries=1)
@depends_on(
    kernel=(*TRAINING, "turnwise.policy.adaptive_penalty", "turnwise.policy.learner.first_step"),
    writes=FIRST_STEPS,
    code=lambda parameters: [
        name for each in parameters.updates.values() for name in asking_code(each.play, each.teacher)
    ],
    reads=lambda parameters: {
        name: inputs for name, each in parameters.updates.items() if (inputs := hindsight_reads(each.play))
    },
)
def first_steps(
    parameters: FirstStepsParameters,
    *,
    policy: Reference,
    rollout: Reference,
    credits: dict[str, Reference],
    references: dict[str, Reference] | None = None,
    values: dict[str, Reference] | None = None,
    sampler: Reference | None = None,
    tokenizer: Reference | None = None,
    label: str = "first steps",
) -> Reference:
    """Compare the updates of a policy by their gradients and by what a step with each would change.

    `credits`, `references` and `values` hold by name what `update` takes for each; one that needs none has no entry.
    """
    from turnwise.policy.learner.first_step import FirstStepLearner, Gradient, cosine
    from turnwise.policy.learner.loading import load_learner

    folder = opened(policy, EVERYTHING if parameters.taken else MODEL_FILES)
    gradients: dict[str, Gradient] = {}
    metrics: dict[str, dict[str, float] | None] = dict.fromkeys(parameters.updates)
    for name, update in parameters.updates.items():
        reference, critic_values = (references or {}).get(name), (values or {}).get(name)
        settings, batch, teacher = batch_of(update, policy, rollout, credits[name], reference, critic_values, tokenizer)
        if batch is None:
            continue
        learner = load_learner(folder, update.learner, base=MODELS.base_of(folder), kind=FirstStepLearner)
        assert isinstance(learner, FirstStepLearner)
        older = None
        if sampler is not None:
            older = MODELS.frozen_policy(sampler, update.learner.compute.changed(compiled=False, learner_processes=1))
        gradients[name], metrics[name] = learner.first_step(batch, settings, older, teacher, taken=parameters.taken)
    first, *others = parameters.updates
    comparison = FirstSteps(
        metrics,
        {
            name: cosine(gradients[first], gradients[name]) if {first, name} <= gradients.keys() else None
            for name in others
        },
    )
    with default_store().write("first_steps") as draft:
        (draft.folder / FIRST_STEPS_FILE).write_text(json.dumps(asdict(comparison), indent=1), encoding="utf-8")
    return draft.reference


def read_first_steps(reference: Reference) -> FirstSteps:
    """What an artifact of `first_steps` holds."""
    text = (default_store().folder(reference) / FIRST_STEPS_FILE).read_text(encoding="utf-8")
    return TypeAdapter(FirstSteps).validate_json(text)
