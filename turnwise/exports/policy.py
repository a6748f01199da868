"""The policy of a recorded run in Hugging Face's layout, with a card that says where it came from."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from turnwise.agent.examples import WorkedExample
from turnwise.agent.formats import make_format
from turnwise.agent.playing import PlayParameters, instruction_of
from turnwise.config.agent import Agent
from turnwise.config.schema import RetryOptions, Rollout, WorldSection
from turnwise.data.trajectory_files import success_of
from turnwise.errors import ConfigurationError
from turnwise.policy.gguf_models import CONVERSION_FILE, in_words
from turnwise.policy.gguf_sources import wheel_models
from turnwise.policy.pretrained import is_commit
from turnwise.project import home
from turnwise.reporting.markdown import render
from turnwise.store import Reference, default_store
from turnwise.store.digests import digest_of
from turnwise.store.provenance import Ancestor, ancestry, codes, platforms
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.finding import RecordedRun, RunArtifacts
from turnwise.tracking.models import register_policy
from turnwise.training_runs.state import worked_examples

CARD = "README.md"
WholePolicy = Callable[[Reference], AbstractContextManager[Path]]
"""A folder with all weights of a policy, within a block: what was pruned is made again, and an adapter is merged."""
FIGURES = ("greedy/success", "sampled/success", "sampled/turns")
"""The metrics of an evaluation that the card shows."""


def require_one_choice(iteration: int | None, best: bool) -> None:
    """Raise ConfigurationError where both an iteration and the best one are asked for."""
    if best and iteration is not None:
        raise ConfigurationError(
            "--best and --iteration each choose a policy; found both: leave one out", "TW-unread-option"
        )


def selected_iteration(artifacts: RunArtifacts, iteration: int | None, best: bool) -> int | None:
    """The iteration that is asked for: that number, or the best one; None: the last. Raises ConfigurationError."""
    require_one_choice(iteration, best)
    return best_iteration(artifacts) if best else iteration


def require_empty(folder: Path) -> None:
    """Raise ConfigurationError unless the folder is empty, or is still to be made."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"--to must be an empty folder or one to make; found something at {folder}: name another",
            "TW-would-overwrite",
        )


def best_iteration(artifacts: RunArtifacts) -> int:
    """The number of the evaluated iteration with the most success in validation, the earliest of several; 0: start."""
    evaluated = {0: artifacts.start}
    evaluated |= {
        n: iteration["evaluation"] for n, iteration in enumerate(artifacts.iterations, 1) if "evaluation" in iteration
    }
    return max(evaluated, key=lambda number: (success_of(evaluated[number]), -number))


def policy_of(artifacts: RunArtifacts, iteration: int | None) -> Reference:
    """The policy after `iteration` updates; None: the final one. Raises ConfigurationError where it was not made."""
    if iteration is None:
        return artifacts.final_policy
    if not 0 <= iteration <= len(artifacts.iterations):
        raise ConfigurationError(
            f"--iteration must be one that the run has made, 0 to {len(artifacts.iterations)}; found {iteration}",
            "TW-unknown-iteration",
        )
    return artifacts.iterations[iteration - 1]["policy"] if iteration else artifacts.prepared["warm_start"]


def write_policy(
    run: RecordedRun, policy: Reference, iteration: int | None, folder: Path, whole_policy: WholePolicy
) -> None:
    """Write a policy of the run, its tokenizer and its card into `folder`, all or nothing, and check that it loads."""
    from turnwise.policy.publication import export_policy
    from turnwise.policy.published import ModelUse, require_usable

    experiment, store = run.artifacts.experiment, default_store()
    tokenizer = store.folder(run.artifacts.prepared["tokenizer"])
    with atomic_folder(folder) as partial, whole_policy(policy) as weights:
        export_policy(weights, tokenizer, partial, temperature=experiment["rollout"]["temperature"])
        (partial / CARD).write_text(card_of(run, policy, iteration), encoding="utf-8")
        require_usable(partial, ModelUse("embedded", experiment["agent"]["context_tokens"]))


def register_best(
    name: str, runs: Sequence[RecordedRun], tracking_uri: str, whole_policy: WholePolicy
) -> RecordedRun | None:
    """Register the final policy that succeeds most in validation in MLflow, as the best version of the model `name`.

    Of equal ones it is the first run's. Returns whose it is: None, and nothing is registered, where every run was ended
    before its last evaluation.
    """
    whole = [run for run in runs if run.artifacts.iterations and "evaluation" in run.artifacts.iterations[-1]]
    if not whole:
        return None
    best = max(whole, key=lambda run: success_of(run.artifacts.iterations[-1]["evaluation"]))
    policy = best.artifacts.final_policy
    with tempfile.TemporaryDirectory(dir=home()) as parent:
        write_policy(best, policy, None, Path(parent) / "policy", whole_policy)
        register_policy(TrackingClient(tracking_uri), name, best.id, str(policy), Path(parent) / "policy")
    return best


def card_of(run: RecordedRun, policy: Reference, iteration: int | None) -> str:
    """The model card: what the policy was made from and by, how it is prompted, and what it can do."""
    artifacts = run.artifacts
    agent = Agent.model_validate_json(json.dumps(artifacts.experiment["agent"]))
    world = artifacts.world
    functions = make_format(agent.format, world).functions
    tree = ancestry(default_store(), policy)
    conversion = conversion_of(tree)
    return render(
        "turnwise.reporting",
        "model-card.md.jinja",
        run=run,
        policy=policy,
        iteration=len(artifacts.iterations) if iteration is None else iteration,
        model=artifacts.experiment["policy"]["model"],
        content=run.tags.get("pretrained"),
        conversion=conversion,
        metadata=_metadata(run, policy, iteration, conversion),
        world=artifacts.experiment["world"]["name"],
        agent=agent,
        instruction=instruction_of(agent, world),
        examples=[turn for each in shown_examples(artifacts.experiment) for turn in each.turns],
        functions=None if functions is None else json.dumps(functions.signatures, indent=1),
        temperature=artifacts.experiment["rollout"]["temperature"],
        parameters=digest_of(artifacts.experiment),
        codes=codes(tree),
        platforms=platforms(tree),
        figures=list(_figures(run, policy, iteration)),
    )


def _metadata(run: RecordedRun, policy: Reference, iteration: int | None, conversion: dict[str, Any] | None) -> str:
    """The card's metadata as Hugging Face's hub reads it: what was trained, its license, and what it reached."""
    from huggingface_hub import EvalResult, ModelCardData

    model, content = run.artifacts.experiment["policy"]["model"], run.tags.get("pretrained")
    wheel, world = wheel_models().get(model), run.artifacts.experiment["world"]["name"]
    results = [
        EvalResult(
            task_type="reinforcement-learning",
            task_name="episodes of several turns",
            dataset_type=world,
            dataset_name=f"{world}, {split} tasks",
            dataset_split=split,
            metric_type=name,
            metric_name=f"{name.replace('/', ' ')} of {run.name}",
            metric_value=value,
        )
        for split, evaluation in _evaluations(run, policy, iteration).items()
        for name, value in default_store().metrics(evaluation).items()
        if name in FIGURES
    ]
    data = ModelCardData(
        model_name=run.name,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["reinforcement-learning", "multi-turn", "turnwise"],
        base_model=wheel.of if wheel else model if content is not None and is_commit(content) else None,
        license=wheel.license if wheel else (conversion or {}).get("license"),
        eval_results=results or None,
        ignore_metadata_errors=False,
    )
    return data.to_yaml().rstrip()


def shown_examples(values: Mapping[str, Any]) -> Sequence[WorkedExample]:
    """The worked examples that the policies of an experiment are shown."""
    sections = {name: json.dumps(values[name]) for name in ("world", "agent", "rollout")}
    play = PlayParameters(
        world=WorldSection.model_validate_json(sections["world"]),
        agent=Agent.model_validate_json(sections["agent"]),
        patience=RetryOptions.taken_from(Rollout.model_validate_json(sections["rollout"])),
    )
    return worked_examples(play, values["data"]["train_tasks"])


def conversion_of(tree: Ancestor) -> dict[str, Any] | None:
    """What is recorded of the GGUF that the first policy of a lineage was dequantised from; None where it was not."""
    if tree.record is not None and tree.record["stage"] == "converted_policy":
        folder = default_store().folder(tree.reference, [CONVERSION_FILE])
        conversion: dict[str, Any] = json.loads((folder / CONVERSION_FILE).read_text(encoding="utf-8"))
        return {**conversion, "precision": in_words(conversion["precisions"])}
    return next(filter(None, map(conversion_of, tree.inputs)), None)


def _figures(run: RecordedRun, policy: Reference, iteration: int | None) -> Iterator[Sequence[str]]:
    """Rows of the card's table: who played which task set, and the metrics in FIGURES as far as there are any."""
    for split, evaluation in _evaluations(run, policy, iteration).items():
        yield ["this policy", split, *_evaluation_rows(evaluation)]
    for name, evaluation in run.baselines.items():
        yield [name, "test", *_evaluation_rows(evaluation)]


def _evaluations(run: RecordedRun, policy: Reference, iteration: int | None) -> dict[str, Reference]:
    """By split, the evaluations of the policy that leaves: on the validation and the test tasks, where it has them."""
    artifacts = run.artifacts
    number = len(artifacts.iterations) if iteration is None else iteration
    validation = artifacts.iterations[number - 1].get("evaluation") if number else artifacts.start
    evaluations = {}
    if validation is not None and policy == policy_of(artifacts, number):
        evaluations["validation"] = validation
    if artifacts.test is not None and policy == artifacts.final_policy:
        evaluations["test"] = artifacts.test
    return evaluations


def _evaluation_rows(evaluation: Reference) -> list[str]:
    metrics = default_store().metrics(evaluation)
    return [f"{metrics[name]:.3f}" if name in metrics else "–" for name in FIGURES]


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A folder next to `folder` to write into, which becomes `folder` at the end, and is removed where that fails."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        os.replace(partial, folder)  # an empty folder is replaced, any other is refused
    finally:
        shutil.rmtree(partial, ignore_errors=True)
