"""Preparation: task sets -> demonstrations -> tokenizer -> policy -> warm start, and the baselines in every table.

All variants and seeds of an ablation share what is prepared here.
"""

from __future__ import annotations

from flows.sampling import evaluation
from tasks.calls import Call, Make, Unrecorded, call
from tasks.prepare.imitation import ConversationParameters, conversations
from tasks.prepare.materials import (
    ConversionParameters,
    DemonstrationParameters,
    PolicyParameters,
    TokenizerParameters,
    converted_policy,
    demonstrations,
    initial_policy,
    task_set,
    tokenizer,
)
from tasks.prepare.warm_start import WarmStartParameters, warm_start
from tasks.rollout.evaluate import BaselineParameters, baseline
from turnwise.agent.playing import PlayParameters
from turnwise.config.schema import Policy
from turnwise.data.task_sets import require_disjoint, tasks_of
from turnwise.experiment import Experiment
from turnwise.policy.gguf_sources import is_gguf
from turnwise.policy.pretrained import outside_model, pretrained, pretrained_folder
from turnwise.policy.tokenizer import require_same_tokens
from turnwise.project import project_root
from turnwise.store import Reference, default_store
from turnwise.store.plugin_identity import outside_file
from turnwise.training_runs.readiness import require_device, require_model
from turnwise.training_runs.state import ON_TEST_TASKS, Materials, Prepared, play_parameters, task_set_parameters
from turnwise.world import SPLITS, Split


def _imitation_parameters(experiment: Experiment) -> PlayParameters:
    """`play_parameters` without rewards of one's own: what is imitated, and where that stops, does not ask for them."""
    return play_parameters(experiment).changed(added_rewards={})


def prepare_materials(experiment: Experiment) -> Materials:
    """Make the task sets, the demonstrations and the tokenizer.

    Raises:
        ConfigurationError: this machine lacks a program that plays the world, or the device or precision that the
            learner needs, or the model cannot be used here (all before anything is computed), or two task sets share a
            task, or a teacher has other tokens than the policy.
    """
    experiment.require_programs()
    # Before the first stage: what this machine cannot do is refused while nothing has been computed.
    require_device(experiment.compute)
    require_model(experiment)
    if (conversion := convert_model(experiment.policy)) is not None:
        require_model(experiment, converted=default_store().folder(conversion.make()))
    prepared = materials(experiment, Call.make)
    for each in (experiment, *map(experiment.variant, experiment.ablation.variants)):
        for key, teacher in each.teachers.items():
            folder = pretrained_folder(outside_model(teacher, key=key))
            require_same_tokens(folder, default_store().folder(prepared.tokenizer))
    return prepared


def materials(experiment: Experiment, make: Make) -> Materials:
    """The task sets, what is imitated, and the tokenizer. Raises ConfigurationError if two task sets share a task."""
    sets = {split: make(draw_tasks(experiment, split)) for split in SPLITS}
    # The contract promises disjoint splits; a world that breaks it would make every later number worthless.
    if not any(isinstance(each, Unrecorded) for each in sets.values()):
        require_disjoint({split: tasks_of(reference, split) for split, reference in sets.items()})
    examples = make(_examples(experiment, sets["train"]))
    conversion = convert_model(experiment.policy)
    converted = None if conversion is None else make(conversion)
    return Materials(
        sets["train"], sets["validation"], sets["test"], examples, make(_tokenizer(experiment, examples, converted))
    )


def draw_tasks(experiment: Experiment, split: Split) -> Call:
    """Draw the task set of a split."""
    return call(task_set, lambda: task_set_parameters(experiment, split), label=f"{split} task set")


def convert_model(policy: Policy) -> Call | None:
    """Convert the GGUF that `policy.model` names; None where it names none."""
    if not is_gguf(policy.model):
        return None
    return call(converted_policy, lambda: ConversionParameters.of(policy))


def _examples(experiment: Experiment, train_task_set: Reference) -> Call:
    """The conversations that the configuration names, or else demonstrations by the world's oracle."""
    data = experiment.data
    if (file := data.conversations) is not None:
        return call(conversations, lambda: ConversationParameters(file=outside_file(project_root() / file)))
    return call(
        demonstrations,
        lambda: DemonstrationParameters(
            **dict(_imitation_parameters(experiment)),
            seed=data.seed,
            count=data.demonstrations,
            noise=data.demonstration_noise,
        ),
        task_set=train_task_set,
    )


def _tokenizer(experiment: Experiment, examples: Reference, converted: Reference | None) -> Call:
    policy = experiment.policy
    return call(
        tokenizer,
        lambda: TokenizerParameters(
            pretrained=None if converted is not None else pretrained(policy),
            chat_template_kwargs=policy.chat_template_kwargs,
            vocabulary=policy.vocabulary,
            format=experiment.agent.format,
        ),
        demonstrations=examples,
        converted=converted,
    )


def prepare_policy(experiment: Experiment, materials: Materials, make: Make = Call.make) -> Prepared:
    """Make the policy that reinforcement starts from: the initial one, after the SFT warm start if that is enabled."""
    policy = make(
        convert_model(experiment.policy)
        or call(
            initial_policy,
            lambda: PolicyParameters.of(
                experiment.policy, pretrained(experiment.policy), experiment.agent.context_tokens
            ),
            tokenizer=materials.tokenizer,
        )
    )
    if experiment.warm_start.enabled:
        warm_start_call = call(
            warm_start,
            lambda: WarmStartParameters(
                **dict(_imitation_parameters(experiment)), compute=experiment.compute, warm_start=experiment.warm_start
            ),
            policy=policy,
            tokenizer=materials.tokenizer,
            demonstrations=materials.demonstrations,
            task_set=materials.validation_task_set,  # where it stops depends on these, so never on the test tasks
        )
        policy = make(warm_start_call)
    return Prepared(**vars(materials), warm_start=policy)


def evaluate_baselines(experiment: Experiment, materials: Materials, make: Make = Call.make) -> dict[str, Reference]:
    """Evaluate the world's baseline policies on the test task set; by name."""
    return {name: make(_baseline(experiment, materials, name)) for name in experiment.made_world.baselines}


def _baseline(experiment: Experiment, materials: Materials, name: str) -> Call:
    return call(
        baseline,
        lambda: BaselineParameters(
            **dict(play_parameters(experiment)),
            baseline=name,
            samples=experiment.evaluation.samples,
            seed=experiment.evaluation.seed,
            split="test",
        ),
        task_set=materials.test_task_set,
        label=f"baseline policy {name}",
    )


def evaluate_warm_start(
    experiment: Experiment, prepared: Prepared, make: Make = Call.make, split: Split = "test"
) -> Reference:
    """Evaluate the warm start on a task set."""
    label = f"warm start {ON_TEST_TASKS}" if split == "test" else f"warm start on the {split} task set"
    return make(evaluation(label, experiment, split, prepared, prepared.warm_start))
