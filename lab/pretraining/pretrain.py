"""`turnwise pretrain`: make the base policies, small ones that can copy and know how the worlds look.

    training tasks -> demonstrations -> one tokenizer -> corpus -> policy, some steps a stage -> published, with a card

They are files of this repository, `turnwise/policy/base`, each with a card: what it was made of, what it can do.

Demonstrations are those that mention no name which a world withholds from training. A policy is trained in stages of
some steps each, and a run that is killed goes on from the last stage.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from prefect import flow
from rich.console import Console

from flows.runtime.flow_runs import ready_for_prefect, run_flow, untagged_tasks
from lab.pretraining.configuration import BaseSize, Pretraining, PretrainingSteps
from lab.pretraining.corpus import (
    COPYING,
    BaseTokenizerParameters,
    CorpusParameters,
    base_tokenizer,
    corpus,
    read_corpus,
)
from tasks.caching import depends_on
from tasks.orchestration.deferred import task
from tasks.playing import world_code
from tasks.prepare.materials import DemonstrationParameters, PolicyParameters, demonstrations, initial_policy, task_set
from tasks.restoring import MODELS
from tasks.rollout.evaluate import BaselineParameters, EvaluationParameters, baseline, evaluate
from turnwise import progress, seeding
from turnwise.agent.playing import the_world
from turnwise.config.model_settings import Compute, LearnerParameters
from turnwise.config.schema import Policy, Section, WorldSection
from turnwise.data.arrays import SequenceBatch, joined
from turnwise.data.metrics import episode_value
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation, read_trajectories, write_trajectories
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
from turnwise.policy.learner.schedule import warmed_up_and_falling
from turnwise.policy.model_files import MODEL_FILES
from turnwise.policy.pretrained import BASE_POLICIES
from turnwise.project import project_root
from turnwise.reporting.markdown import render
from turnwise.store import MANIFEST, Reference, default_store
from turnwise.store.atomic_write import write_whole
from turnwise.suggestions import unknown
from turnwise.training_runs.display import Display
from turnwise.training_runs.state import TaskSetParameters, play_parameters, task_set_parameters

CARD = "README.md"


@dataclass(frozen=True)
class TrainingText:
    """What all base policies are trained on, tokenized."""

    tokenizer: Reference
    sequences: Reference
    weights: Mapping[str, float]
    """How often a sequence is drawn from each source, relative to the others."""


@dataclass(frozen=True)
class CardLine:
    """What a base policy can do in one world: means of its primary metric on test tasks."""

    world: str
    greedy: float
    sampled: float
    random: float


@flow(name="pretraining", flow_run_name="pretraining of {name}", validate_parameters=False, persist_result=False)
@untagged_tasks
def pretraining_flow(
    configuration: Pretraining, experiments: Mapping[str, Experiment], name: str, folder: Path, console: Console
) -> Reference:
    """Make one base policy, write it into `folder`/`name` with its card, and return its artifact."""
    with Display(console, _expected_stages(configuration)).showing():
        text = make_corpus(configuration, experiments)
        policy = train(configuration, name, text)
        published = base_policy(PublicationParameters(), policy=policy, tokenizer=text.tokenizer, label=name)
        lines = [_card_line(name, world, each, published, text.tokenizer) for world, each in experiments.items()]
    _write(configuration, name, published, policy, text, lines, folder / name)
    return published


def pretrain(configuration: Pretraining, names: Sequence[str], folder: Path | None, console: Console) -> None:
    """Make the base policies of these names, or all; the result is in `folder`, by default this package's own.

    Raises:
        ConfigurationError: a name or a source is not in the configuration, or an overlay cannot be used.
    """
    for name in names:
        if name not in configuration.policies:
            raise ConfigurationError(f"a base policy: {unknown(name, configuration.policies)}", "TW-unknown-policy")
    for phase in configuration.training.phases:
        for source in phase.sources or ():
            if source not in (known := [*configuration.worlds, *COPYING]):
                raise ConfigurationError(f"a source of a phase: {unknown(source, known)}", "TW-unknown-source")
    experiments = experiments_of(configuration)
    ready_for_prefect(console)
    for name in names or configuration.policies:
        policy = run_flow(pretraining_flow, configuration, experiments, name, folder or BASE_POLICIES, console)
        console.print(f"{name}: {policy.digest} in {folder or BASE_POLICIES}")


def experiments_of(configuration: Pretraining) -> dict[str, Experiment]:
    """The experiment of each world: the default one with the world's overlay. Raises ConfigurationError."""
    root = project_root()
    return {
        name: load(root / "params.yaml", [root / overlay for overlay in world.overlays])
        for name, world in sorted(configuration.worlds.items())
    }


def make_corpus(configuration: Pretraining, experiments: Mapping[str, Experiment]) -> TrainingText:
    """Play the demonstrations of every world's training tasks, train the tokenizer, and tokenize everything."""
    play = {name: play_parameters(each) for name, each in experiments.items()}
    # All task sets first: a world with fewer tasks than asked for is found out before any episode is played.
    tasks = {
        name: task_set(
            TaskSetParameters(world=experiments[name].world, split="train", tasks=world.tasks),
            label=f"{name}: training tasks",
        )
        for name, world in sorted(configuration.worlds.items())
    }
    world_demonstrations: dict[str, Reference] = {}
    for name, world in sorted(configuration.worlds.items()):
        parameters = DemonstrationParameters(
            **dict(play[name]), seed=configuration.seed, count=world.tasks, noise=world.noise
        )
        world_demonstrations[name] = readable_demonstrations(
            FilterParameters(world=experiments[name].world),
            demonstrations=demonstrations(parameters, task_set=tasks[name], label=f"{name}: demonstrations"),
            label=f"{name}: what may be read",
        )
    formats = tuple(sorted({each.agent.format for each in play.values()}))
    tokenizer = base_tokenizer(
        BaseTokenizerParameters(vocabulary=configuration.vocabulary, formats=formats),
        demonstrations=world_demonstrations,
    )
    sequences = corpus(
        CorpusParameters(
            seed=configuration.seed,
            context_tokens=configuration.context_tokens,
            observed_share=configuration.observed_share,
            copying=configuration.copying,
            play=play,
        ),
        tokenizer=tokenizer,
        demonstrations=world_demonstrations,
    )
    weights = {name: world.weight for name, world in configuration.worlds.items()}
    return TrainingText(tokenizer, sequences, {**weights, **dict.fromkeys(COPYING, configuration.copying.weight)})


def train(configuration: Pretraining, name: str, text: TrainingText) -> Reference:
    """Train the base policy of this name; each stage of some steps starts from the one before it."""
    size, training = configuration.policies[name], configuration.training
    policy = initial_policy(
        PolicyParameters.of(_from_scratch(configuration, size), None, configuration.context_tokens),
        tokenizer=text.tokenizer,
        label=name,
    )
    for first in range(1, training.steps + 1, training.steps_per_stage):
        policy = pretraining(
            PretrainingParameters(
                seed=configuration.seed,
                compute=_compute(training.threads),
                training=training,
                learning_rate=size.learning_rate,
                weights=dict(text.weights),
                first_step=first,
            ),
            policy=policy,
            corpus=text.sequences,
            label=f"{name} from step {first}",
        )
    return policy


def _expected_stages(configuration: Pretraining) -> Counter[str]:
    worlds = len(configuration.worlds)
    world_stages = Counter({"task_set": 2 * worlds, "demonstrations": worlds, "evaluate": worlds, "baseline": worlds})
    stages = -(-configuration.training.steps // configuration.training.steps_per_stage)
    return world_stages + Counter({"pretraining": stages})


def _compute(threads: int) -> Compute:
    """The default experiment's section, on this many threads, with the engine that is made for small policies."""
    compute = load(project_root() / "params.yaml").compute
    return compute.model_copy(update={"engine": "embedded", "learner_threads": threads})


def _from_scratch(configuration: Pretraining, size: BaseSize) -> Policy:
    return Policy(
        model="scratch",
        seed=configuration.seed,
        vocabulary=configuration.vocabulary,
        hidden=size.hidden,
        layers=size.layers,
        heads=size.heads,
        feed_forward=size.feed_forward,
        initial_deviation=size.initial_deviation,
        tied_embeddings=True,
    )


def _card_line(name: str, world: str, experiment: Experiment, policy: Reference, tokenizer: Reference) -> CardLine:
    """Evaluate a published base policy on the test tasks of one world."""
    tasks = task_set(task_set_parameters(experiment, "test"), label=f"{world}: test tasks")
    play, primary = play_parameters(experiment), experiment.made_world.primary_metric
    evaluated = evaluate(
        EvaluationParameters.of(play, _compute(1), experiment.evaluation, "test"),
        policy=policy,
        tokenizer=tokenizer,
        task_set=tasks,
        label=f"{name} in {world}",
    )
    at_random = baseline(
        BaselineParameters(
            **dict(play),
            baseline="random",
            samples=experiment.evaluation.samples,
            seed=experiment.evaluation.seed,
            split="test",
        ),
        task_set=tasks,
        label=f"random in {world}",
    )

    def success(evaluation: Reference, mode: str) -> float:
        values = [episode_value(episode, primary) for episode in read_evaluation(evaluation, mode)]
        return sum(values) / len(values)

    return CardLine(world, success(evaluated, GREEDY), success(evaluated, SAMPLED), success(at_random, SAMPLED))


def _write(
    configuration: Pretraining,
    name: str,
    published: Reference,
    policy: Reference,
    text: TrainingText,
    lines: Sequence[CardLine],
    folder: Path,
) -> None:
    store = default_store()
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(store.folder(published).iterdir()):
        if path.is_file() and path.name != MANIFEST:
            shutil.copyfile(path, folder / path.name)
    count = store.metrics(text.sequences)
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    card = render(
        "lab",
        "base-policy.md.jinja",
        name=name,
        digest=published.digest,
        corpus=text.sequences.digest,
        tokenizer=text.tokenizer.digest,
        shape=shape,
        size=configuration.policies[name],
        training=configuration.training,
        loss=store.metrics(policy)["loss"],
        sources=[
            (source, int(count[f"sequences/{source}"]), int(count[f"tokens/{source}"]), weight)
            for source, weight in sorted(text.weights.items())
        ],
        lines=lines,
    )
    write_whole(folder / CARD, card)


_WORD = re.compile(r"\w+")


class FilterParameters(Section):
    """The parameters of the filter."""

    world: WorldSection


@task(name="readable_demonstrations", task_run_name="{label}: readable_demonstrations", retries=1)
@depends_on(code=lambda parameters: world_code(parameters.world))
def readable_demonstrations(
    parameters: FilterParameters, *, demonstrations: Reference, label: str = "readable_demonstrations"
) -> Reference:
    """Keep the demonstrations in which no observation and no reply mentions a withheld name of the world.

    A training task may show such a name: a search lists other cities than the one asked about. Raises
    ConfigurationError where no demonstration is left.
    """
    withheld = WithheldNames(the_world(parameters.world).withheld_names())
    trajectories = read_trajectories(default_store().folder(demonstrations))
    readable = [
        each
        for each in trajectories
        if not any(
            withheld.found_in(text) for turn in each.turns for text in (turn.observation, turn.asked, turn.reply)
        )
    ]
    if not readable:
        raise ConfigurationError(
            f"a demonstration must mention no withheld name of the world {parameters.world.name!r}; all of "
            f"{len(trajectories)} do: play more",
            "TW-no-demonstration",
        )
    with default_store().write("demonstrations") as draft:
        write_trajectories(draft.folder, readable)
        draft.metrics["played"] = len(trajectories)
        draft.metrics["kept"] = len(readable)
    return draft.reference


class WithheldNames:
    """Names of one or several words, looked for in texts as whole words, with any punctuation between them.

    Case matters: Of is a city, of is not.
    """

    def __init__(self, names: Collection[str]) -> None:
        words = sorted((tuple(_words(name)) for name in names), key=len)
        self._by_length = {length: frozenset(each) for length, each in groupby(words, key=len) if length}

    def found_in(self, text: str) -> bool:
        """Whether the text mentions at least one of the names."""
        words = _words(text)
        return any(
            tuple(words[place : place + length]) in names
            for length, names in self._by_length.items()
            for place in range(len(words) - length + 1)
        )


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


class PretrainingParameters(Section):
    """The parameters of some steps of a base policy's training."""

    seed: int
    compute: Compute
    training: PretrainingSteps
    learning_rate: float
    weights: dict[str, float]
    """How often a sequence is drawn from each source of the corpus, relative to the others."""
    first_step: int
    """1 for the first stage."""


@task(name="pretraining", task_run_name="{label}: pretraining", retries=1)
@depends_on()
def pretraining(
    parameters: PretrainingParameters, *, policy: Reference, corpus: Reference, label: str = "pretraining"
) -> Reference:
    """Train all weights for `training.steps_per_stage` steps from `first_step` on; saves the policy and its optimizer.

    Each sequence of a batch is drawn from a source of the step's phase by the weights, and within the source with equal
    probability.
    Metric `loss`: the mean over these steps, in nats per trained token.
    """
    section, sources = parameters.training, read_corpus(corpus)
    loading = LearnerParameters(compute=parameters.compute)
    learner = MODELS.take_learner(policy, loading)
    last = min(parameters.first_step + section.steps_per_stage - 1, section.steps)
    losses = []
    for step in range(parameters.first_step, last + 1):
        metrics = learner.supervised_step(
            _draw_batch(sources, parameters, step),
            learning_rate=warmed_up_and_falling(step, section.steps, parameters.learning_rate, section),
            micro_batch_tokens=section.micro_batch_tokens,
            weight_decay=section.weight_decay,
        )
        losses.append(metrics["loss"])
        progress.report("pretraining", step, section.steps, loss=metrics["loss"])
    with default_store().write("policy") as draft:
        learner.save(draft.folder)
        draft.metrics["loss"] = float(np.mean(losses))
        draft.metrics["steps"] = last
    MODELS.keep_learner(draft.reference, loading, learner)
    return draft.reference


def _draw_batch(sources: dict[str, SequenceBatch], parameters: PretrainingParameters, step: int) -> SequenceBatch:
    draw = seeding.generator(parameters.seed, "pretraining", step)
    phase = parameters.training.phase_of(step)
    names = sorted(parameters.weights if phase.sources is None else phase.sources)
    weights = np.array([parameters.weights[name] for name in names])
    counts = np.bincount(draw.choice(len(names), size=phase.batch, p=weights / weights.sum()), minlength=len(names))
    return joined(
        sources[name].select(draw.integers(len(sources[name]), size=count))
        for name, count in zip(names, counts, strict=True)
        if count
    )


class PublicationParameters(Section):
    """A published base policy has no parameters: it is what its inputs are."""


@task(name="base_policy", task_run_name="{label}: base_policy", retries=1)
@depends_on()
def base_policy(
    parameters: PublicationParameters, *, policy: Reference, tokenizer: Reference, label: str = "base_policy"
) -> Reference:
    """The policy with its weights rounded to bfloat16, half the size, and its tokenizer, in one folder.

    What was trained in float32 is evaluated as published, after rounding.
    """
    from turnwise.policy.publication import publish_weights

    with default_store().write("policy") as draft:
        publish_weights(default_store().folder(policy, MODEL_FILES), draft.folder)
        shutil.copytree(
            default_store().folder(tokenizer), draft.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST)
        )
    return draft.reference
