"""`record` and `learn`: an outside agent's conversations with a policy, and an update of that policy from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.python.recorded import runs
from flows.runtime.flow_runs import ready_for_prefect
from flows.runtime.process_settings import prepare_process
from turnwise.config.model_settings import EngineName
from turnwise.config.schema import RewardSection
from turnwise.errors import ConfigurationError
from turnwise.exports.policy import policy_of, selected_iteration
from turnwise.store import Reference, default_store
from turnwise.store.provenance import matching_artifacts

if TYPE_CHECKING:
    from flows.runtime.endpoint import AnsweringPolicy, Recording
    from turnwise.experiment import Experiment


@dataclass(frozen=True)
class Learned:
    """What an update has made of recorded episodes."""

    credit: Reference
    policy: Reference
    metrics: Mapping[str, float]
    """Of the update."""


def record(
    policy: str | Path,
    *,
    iteration: int | None = None,
    best: bool = False,
    engine: EngineName = "embedded",
    device: str = "cpu",
    threads: int = 1,
    context_tokens: int = 2048,
    reply_tokens: int = 256,
    temperature: float = 1.0,
    seed: int = 0,
    at_once: int = 64,
    written: Callable[[dict[str, Any]], None] = lambda rollout: None,
    tracking: str | None = None,
) -> Recording:
    """An endpoint for agents that own their loop, which records exact tokens and log-probabilities.

    A block: `with record("models/mine") as recording, recording.serving() as address: ...`. An agent's base URL is then
    `{address}/GROUP/EPISODE/v1`, and its reward is posted to `{address}/GROUP/EPISODE/reward`. At the end of the block,
    or by `recording.recorder.write()`, the episodes become a rollout in the store.

    Args:
        policy: a model folder in Hugging Face's layout, or the id, name or tag of a recorded run.
        iteration: of a run, the policy after so many iterations; None: the final one.
        best: of a run, the policy with the most success in validation.
        engine: what samples: `embedded` or `vllm`.
        device: cpu or cuda.
        threads: CPU threads of the engine.
        context_tokens: the most tokens of a context and its reply.
        reply_tokens: the most tokens of a reply, where a request asks for no fewer.
        temperature: at which all replies are sampled.
        seed: of the sampling.
        at_once: replies that are sampled together; further requests wait.
        written: called with what is told of each rollout that is written: `rollout`, `episodes`, `lost`, `policy`.
        tracking: MLflow's store, by default the project's.

    Raises:
        ConfigurationError: there is no such policy, or its tokenizer has no chat template.
    """
    prepare_process()
    from flows.runtime.endpoint import Recording, RecordSettings

    answering = _policy(policy, iteration, best, tracking)
    settings = RecordSettings(engine, device, threads, context_tokens, reply_tokens, float(temperature), seed, at_once)
    return Recording(answering, settings, written)


def learn(
    experiment: Experiment,
    rollout: Reference | str,
    policy: Reference | str,
    *,
    rewards: Mapping[str, RewardSection] | None = None,
    seed: int = 0,
    number: int = 1,
    quiet: bool = False,
) -> Learned:
    """Credit a recorded rollout and update the policy that answered in it.

    Both are the stages of a run, cached like any: the sections credit, optimization, compute and `rollout.temperature`
    of `experiment` say how.

    Args:
        experiment: what `load` returned. Its world is not played.
        rollout: what `record` has written, as `rollout/DIGEST`.
        policy: the policy that has answered, as `policy/DIGEST`.
        rewards: level and weight of each posted reward; None: weight 1, and the level turn where a single turn has it.
        seed: of the shuffling into mini-batches.
        number: of the update, for the shuffling and the schedule of its learning rate.
        quiet: show no progress.

    Raises:
        ConfigurationError: the experiment's credit or update needs more than recorded episodes have, or a reward was
            never posted.
    """
    prepare_process()
    scored = [experiment.has_critic, experiment.plays_greedily, *experiment.rescored, experiment.credit.thought]
    optimization = experiment.optimization
    if any(scored) or optimization.reference is not None or optimization.distillation is not None:
        raise ConfigurationError(
            "credit of recorded episodes reads their rewards, groups, turns and lengths alone, and their update has no "
            f"reference policy; found credit.estimator {experiment.credit.estimator}: choose one that needs no critic, "
            "no policy and no credit.thought, and set optimization.reference and optimization.distillation to null",
            "TW-credit-needs-more",
        )
    ready_for_prefect(Console(quiet=quiet))
    from flows.learning import update_parameters
    from tasks.credit.credit import CreditParameters, credit
    from tasks.update.update import update

    episodes, answering = _reference(rollout), _reference(policy)
    sections = _rewards(episodes, rewards)
    parameters = CreditParameters(rewards=sections, credit=experiment.credit, reference=None)
    credited = credit(parameters, rollout=episodes)
    next_policy = update(
        update_parameters(experiment, seed, number), policy=answering, rollout=episodes, credit=credited
    )
    return Learned(credited, next_policy, default_store().metrics(next_policy))


def _policy(policy: str | Path, iteration: int | None, best: bool, tracking: str | None) -> AnsweringPolicy:
    from flows.credit_study import store_policy
    from flows.runtime.endpoint import AnsweringPolicy

    folder = Path(policy)
    if folder.is_dir():
        if iteration is not None or best:
            raise ConfigurationError(
                f"--iteration and --best choose a policy of a run; {folder} is a model folder", "TW-unread-option"
            )
        return AnsweringPolicy(folder.name, store_policy(folder), folder)
    artifacts = runs(str(policy), tracking=tracking).one.artifacts
    reference = policy_of(artifacts, selected_iteration(artifacts, iteration, best))
    return AnsweringPolicy(str(policy), reference, default_store().folder(artifacts.prepared["tokenizer"]))


def _reference(reference: Reference | str) -> Reference:
    if isinstance(reference, Reference):
        return reference
    matches = matching_artifacts(default_store(), reference) if "/" in reference else []
    if len(matches) != 1:
        raise ConfigurationError(
            f"KIND/DIGEST must name one artifact of the store; {reference!r} names "
            f"{', '.join(map(str, matches)) or 'none'}",
            "TW-ambiguous-digest",
        )
    return matches[0]


def _rewards(rollout: Reference, sections: Mapping[str, RewardSection] | None) -> dict[str, RewardSection]:
    """The rewards of a rollout. Raises ConfigurationError for one that was never posted."""
    from tasks.restoring import trajectories_of

    levels: dict[str, RewardSection] = {}
    for trajectory in trajectories_of(rollout):
        *earlier, last = trajectory.turns
        for name in last.rewards:
            levels.setdefault(name, RewardSection(level="outcome", weight=1.0))
        levels |= {name: RewardSection(level="turn", weight=1.0) for turn in earlier for name in turn.rewards}
    if sections is None:
        return levels
    if unposted := sorted(sections.keys() - levels.keys()):
        raise ConfigurationError(
            f"rewards must be posted ones, {', '.join(levels)}; found {', '.join(unposted)}", "TW-unknown-reward"
        )
    return dict(sections)
