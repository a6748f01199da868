"""Preparation: task sets -> demonstrations -> tokenizer -> policy -> warm start, and the baselines in every table.

All variants and seeds of an ablation share what is prepared here.
"""

from __future__ import annotations

from flows.needs.readiness import require_device, require_model
from flows.run_state import ON_TEST_TASKS, Materials, Prepared, play_parameters, task_set_parameters
from tasks.playing import tasks_of
from tasks.prepare.conversations import ConversationParameters, conversations
from tasks.prepare.conversion import ConversionParameters, converted_policy
from tasks.prepare.materials import (
    DemonstrationParameters,
    PolicyParameters,
    TokenizerParameters,
    demonstrations,
    initial_policy,
    task_set,
    tokenizer,
)
from tasks.prepare.warm_start import WarmStartParameters, warm_start
from tasks.rollout.evaluate import BaselineParameters, EvaluationParameters, baseline, evaluate
from turnwise.agent.playing import PlayParameters
from turnwise.config.schema import Policy
from turnwise.data.task_sets import require_disjoint
from turnwise.experiment import Experiment
from turnwise.policy.pretrained import pretrained
from turnwise.project import project_root
from turnwise.store import Reference, default_store
from turnwise.store.outside import outside_file
from turnwise.world import SPLITS


def _imitation_parameters(experiment: Experiment) -> PlayParameters:
    """`play_parameters` without rewards of one's own: what is imitated, and where that stops, does not ask for them."""
    return play_parameters(experiment).changed(added_rewards={})


def prepare_materials(experiment: Experiment) -> Materials:
    """Make the task sets, the demonstrations and the tokenizer.

    Raises:
        ConfigurationError: this machine lacks a program that plays the world, or the device or precision that the
            learner needs, or the model cannot be used here (all before anything is computed), or two task sets share a
            task.
    """
    experiment.require_programs()
    # Before the first stage: what this machine cannot do is refused while nothing has been computed.
    require_device(experiment.compute)
    require_model(experiment)
    converted = convert_model(experiment.policy)
    if converted is not None:
        require_model(experiment, converted=default_store().folder(converted))
    made = {split: task_set(task_set_parameters(experiment, split), label=f"{split} task set") for split in SPLITS}
    # The contract promises disjoint splits; a world that breaks it would make every later number worthless.
    require_disjoint({split: tasks_of(reference, split) for split, reference in made.items()})
    made_demonstrations = _to_imitate(experiment, made["train"])
    policy = experiment.policy
    made_tokenizer = tokenizer(
        TokenizerParameters(
            pretrained=None if converted is not None else pretrained(policy),
            chat_template_kwargs=policy.chat_template_kwargs,
            vocabulary=policy.vocabulary,
            format=experiment.agent.format,
        ),
        demonstrations=made_demonstrations,
        converted=converted,
    )
    return Materials(made["train"], made["validation"], made["test"], made_demonstrations, made_tokenizer)


def convert_model(policy: Policy) -> Reference | None:
    """Convert the GGUF that `policy.model` names; None where it names none."""
    parameters = ConversionParameters.of(policy)
    return None if parameters is None else converted_policy(parameters)


def _to_imitate(experiment: Experiment, train_task_set: Reference) -> Reference:
    """The conversations that the configuration names, or else demonstrations by the world's oracle."""
    data = experiment.data
    if data.conversations is not None:
        return conversations(ConversationParameters(file=outside_file(project_root() / data.conversations)))
    return demonstrations(
        DemonstrationParameters(
            **dict(_imitation_parameters(experiment)),
            seed=data.seed,
            count=data.demonstrations,
            noise=data.demonstration_noise,
        ),
        task_set=train_task_set,
    )


def prepare_policy(experiment: Experiment, materials: Materials) -> Prepared:
    """Make the policy that reinforcement starts from: the initial one, after the SFT warm start if that is enabled."""
    policy = convert_model(experiment.policy) or initial_policy(
        PolicyParameters.of(experiment.policy, pretrained(experiment.policy), experiment.agent.context_tokens),
        tokenizer=materials.tokenizer,
    )
    if experiment.warm_start.enabled:
        policy = warm_start(
            WarmStartParameters(
                **dict(_imitation_parameters(experiment)), compute=experiment.compute, warm_start=experiment.warm_start
            ),
            policy=policy,
            tokenizer=materials.tokenizer,
            demonstrations=materials.demonstrations,
            task_set=materials.validation_task_set,  # where it stops depends on these, so never on the test tasks
        )
    return Prepared(**vars(materials), warm_start=policy)


def evaluate_baselines(experiment: Experiment, materials: Materials) -> dict[str, Reference]:
    """Evaluate the world's baseline policies on the test task set; by name."""
    evaluation = experiment.evaluation
    return {
        name: baseline(
            BaselineParameters(
                **dict(play_parameters(experiment)),
                baseline=name,
                samples=evaluation.samples,
                seed=evaluation.seed,
                split="test",
            ),
            task_set=materials.test_task_set,
            label=f"baseline policy {name}",
        )
        for name in experiment.made_world.baselines
    }


def evaluate_warm_start(experiment: Experiment, prepared: Prepared) -> Reference:
    """Evaluate the warm start on the test task set."""
    return evaluate(
        EvaluationParameters.of(play_parameters(experiment), experiment.compute, experiment.evaluation, "test"),
        policy=prepared.warm_start,
        tokenizer=prepared.tokenizer,
        task_set=prepared.test_task_set,
        label=f"warm start {ON_TEST_TASKS}",
    )
