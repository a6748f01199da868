"""`turnwise pretrain`: make the base policies, small ones that can copy and know how the worlds look.

    training tasks -> demonstrations -> one tokenizer -> corpus -> policy, some steps a stage -> published, with a card

They are files of this repository, `turnwise/policy/base`, each with a card: what it was made of, what it can do.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from rich.console import Console

from flows.runtime.flow_runs import ready_for_prefect, run_flow, untagged_tasks
from lab.pretraining.configuration import BaseSize, Pretraining
from lab.pretraining.corpus import (
    COPYING,
    BaseTokenizerParameters,
    CorpusParameters,
    base_tokenizer,
    corpus,
)
from lab.pretraining.demonstrations import FilterParameters, readable_demonstrations
from lab.pretraining.training import PretrainingParameters, PublicationParameters, base_policy, pretraining
from tasks.prepare.materials import DemonstrationParameters, PolicyParameters, demonstrations, initial_policy, task_set
from tasks.rollout.evaluate import BaselineParameters, EvaluationParameters, baseline, evaluate
from turnwise.config.model_settings import Compute
from turnwise.config.schema import Policy
from turnwise.data.metrics import episode_value
from turnwise.data.trajectory_files import GREEDY, SAMPLED, read_evaluation
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load
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
        trained = train(configuration, name, text)
        published = base_policy(PublicationParameters(), policy=trained, tokenizer=text.tokenizer, label=name)
        lines = [_card_line(name, world, each, published, text.tokenizer) for world, each in experiments.items()]
    _write(configuration, name, published, trained, text, lines, folder / name)
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
    played: dict[str, Reference] = {}
    for name, world in sorted(configuration.worlds.items()):
        parameters = DemonstrationParameters(
            **dict(play[name]), seed=configuration.seed, count=world.tasks, noise=world.noise
        )
        played[name] = readable_demonstrations(
            FilterParameters(world=experiments[name].world),
            demonstrations=demonstrations(parameters, task_set=tasks[name], label=f"{name}: demonstrations"),
            label=f"{name}: what may be read",
        )
    formats = tuple(sorted({each.agent.format for each in play.values()}))
    tokenizer = base_tokenizer(
        BaseTokenizerParameters(vocabulary=configuration.vocabulary, formats=formats), demonstrations=played
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
        demonstrations=played,
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
    of_worlds = Counter({"task_set": 2 * worlds, "demonstrations": worlds, "evaluate": worlds, "baseline": worlds})
    stages = -(-configuration.training.steps // configuration.training.steps_per_stage)
    return of_worlds + Counter({"pretraining": stages})


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
    trained: Reference,
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
        loss=store.metrics(trained)["loss"],
        sources=[
            (source, int(count[f"sequences/{source}"]), int(count[f"tokens/{source}"]), weight)
            for source, weight in sorted(text.weights.items())
        ],
        lines=lines,
    )
    write_whole(folder / CARD, card)
