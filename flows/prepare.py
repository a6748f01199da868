"""Preparation: task sets -> demonstrations -> tokenizer -> policy -> warm start, and the baselines in every table.

All variants and seeds of an ablation share what is prepared here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tasks.playing import tasks_of
from tasks.prepare.conversations import ConversationParameters, conversations
from tasks.prepare.conversion import ConversionParameters, converted_policy
from tasks.prepare.materials import (
    DemonstrationParameters,
    PolicyParameters,
    TaskSetParameters,
    TokenizerParameters,
    demonstrations,
    initial_policy,
    task_set,
    tokenizer,
)
from tasks.prepare.warm_start import WarmStartParameters, warm_start
from tasks.rollout.evaluate import BaselineParameters, EvaluationParameters, baseline, evaluate
from turnwise.agent.examples import WorkedExample
from turnwise.agent.formats import make_format
from turnwise.agent.playing import PlayParameters, play_examples, the_world
from turnwise.config.agent_rewards import added_rewards, requested_rewards
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.config.schema import Policy, RetryOptions
from turnwise.data.task_sets import require_disjoint
from turnwise.experiment import Experiment
from turnwise.policy.gguf_sources import gguf_configuration, is_gguf
from turnwise.policy.pretrained import model_directory, pretrained, pretrained_folder
from turnwise.project import project_root
from turnwise.store import Reference, default_store
from turnwise.store.outside import outside_file
from turnwise.world import SPLITS, Split

ON_TEST_TASKS = "on the test task set"
"""How the label of an evaluation says that it is one."""


@dataclass(frozen=True)
class Materials:
    """The tasks, demonstrations and tokenizer, made before any policy."""

    train_task_set: Reference
    validation_task_set: Reference
    test_task_set: Reference
    demonstrations: Reference
    """Demonstrations or a user's conversations, to be imitated."""
    tokenizer: Reference

    def task_set(self, split: Split) -> Reference:
        """The task set of a split."""
        return {"train": self.train_task_set, "validation": self.validation_task_set, "test": self.test_task_set}[split]


@dataclass(frozen=True)
class Prepared(Materials):
    """The starting point of every run of an ablation."""

    warm_start: Reference
    """The policy that reinforcement starts from."""


def play_parameters(experiment: Experiment) -> PlayParameters:
    """The parameters of an experiment that all stages that play episodes share.

    Raises ConfigurationError where the world's oracle cannot play the worked examples.
    """
    parameters = PlayParameters(
        world=experiment.world,
        agent=experiment.agent,
        patience=RetryOptions.taken_from(experiment.rollout),
        further_rewards=requested_rewards(experiment.rewards, experiment.made_world),
        added_rewards=added_rewards(experiment.rewards),
    )
    return parameters.changed(examples=worked_examples(parameters, experiment.data.train_tasks))


def worked_examples(parameters: PlayParameters, train_tasks: int) -> tuple[WorkedExample, ...]:
    """The worked examples that `agent.examples` asks for, from the first of so many training tasks."""
    if not parameters.agent.examples:
        return ()
    return _examples(parameters.changed(further_rewards=(), added_rewards={}).model_dump_json(), train_tasks)


@cache
def _examples(parameters: str, train_tasks: int) -> tuple[WorkedExample, ...]:
    """The worked examples for parameters as JSON; each is played once in a process."""
    read = PlayParameters.model_validate_json(parameters)
    return play_examples(read, the_world(read.world).tasks("train", train_tasks))


def _imitation_parameters(experiment: Experiment) -> PlayParameters:
    """`play_parameters` without rewards of one's own: what is imitated, and where that stops, does not ask for them."""
    return play_parameters(experiment).changed(added_rewards={})


def task_set_parameters(experiment: Experiment, split: Split) -> TaskSetParameters:
    """The parameters of the task set of a split."""
    data = experiment.data
    counts = {"train": data.train_tasks, "validation": data.validation_tasks, "test": data.test_tasks}
    return TaskSetParameters(world=experiment.world, split=split, tasks=counts[split])


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
    made = {split: task_set.named(f"{split} task set")(task_set_parameters(experiment, split)) for split in SPLITS}
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


def require_model(experiment: Experiment, *, thoroughly: bool = True, converted: Path | None = None) -> None:
    """Raise ConfigurationError if `policy.model` is a published model that cannot be used here.

    It is downloaded first where it is on a hub. Without `thoroughly` it is judged by its files alone, without the
    seconds that importing transformers takes, and a model that is not on this machine is not judged. Of a GGUF only the
    sizes are, until it is `converted`: the folder that it then is in.
    """
    from turnwise.policy.published import require_readable, require_sizes, require_usable

    model, compute = experiment.policy.model, experiment.compute
    if is_gguf(model):
        require_sizes(
            gguf_configuration(model),
            model,
            engine=compute.engine,
            tensor_parallel=compute.tensor_parallel,
            context_tokens=experiment.agent.context_tokens,
        )
        folder = converted
    elif thoroughly:
        found = pretrained(experiment.policy)
        folder = None if found is None else pretrained_folder(found)
    else:
        folder = model_directory(model)
    if folder is None:
        return
    require = require_usable if thoroughly else require_readable
    require(
        folder,
        engine=compute.engine,
        tensor_parallel=compute.tensor_parallel,
        context_tokens=experiment.agent.context_tokens,
        chat_template_kwargs=experiment.policy.chat_template_kwargs,
        functions=make_format(experiment.agent.format, experiment.made_world).functions,
    )


def require_device(compute: Compute) -> None:
    """Raise ConfigurationError if this machine lacks the device or precision that the learner needs."""
    plain = (compute.device, compute.precision, compute.compiled) == ("cpu", "float32", False)
    if plain and compute.moments != "8-bit":
        return  # every machine supports this, and a fully cached run need not import torch
    from turnwise.policy.model import require_cards, require_device

    require_device(LearnerParameters(compute=compute).model, compute.device)
    if compute.device == "cuda":
        require_cards(compute.cards)


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
        name: baseline.named(f"baseline policy {name}")(
            BaselineParameters(
                **dict(play_parameters(experiment)),
                baseline=name,
                samples=evaluation.samples,
                seed=evaluation.seed,
                split="test",
            ),
            task_set=materials.test_task_set,
        )
        for name in experiment.made_world.baselines
    }


def evaluate_warm_start(experiment: Experiment, prepared: Prepared) -> Reference:
    """Evaluate the warm start on the test task set."""
    return evaluate.named(f"warm start {ON_TEST_TASKS}")(
        EvaluationParameters.of(play_parameters(experiment), experiment.compute, experiment.evaluation, "test"),
        policy=prepared.warm_start,
        tokenizer=prepared.tokenizer,
        task_set=prepared.test_task_set,
    )
