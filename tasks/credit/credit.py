"""Credit: turns the rewards of a rollout, weighted and placed as configured, into advantages of turns or tokens."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tasks.caching import depends_on
from tasks.credit.scores import read_scores
from tasks.credit.select import read_choice
from tasks.orchestration.deferred import task
from tasks.playing import format_code
from tasks.restoring import opened, trajectories_of
from turnwise.agent.formats import format_class, thought_lengths
from turnwise.config.optimization import ReferencePenalty
from turnwise.config.schema import Credit, RewardSection, Section, ThoughtCredit
from turnwise.credit import (
    ESTIMATORS,
    CreditBatch,
    account,
    estimator_of,
    rollout_advantages,
    rules_of,
)
from turnwise.credit.batch import rewards_of_groups
from turnwise.credit.selection import trainable
from turnwise.data.arrays import Advantages, Ragged, TrajectoryArrays
from turnwise.data.trajectory_files import CREDIT, read_arrays, write_credit
from turnwise.plugins import CREDIT_RULE, plugin_modules
from turnwise.store import Draft, Reference, default_store
from turnwise.store.plugin_identity import plugin_ingredients

logger = logging.getLogger(__name__)


class CreditParameters(Section):
    """The parameters of credit."""

    rewards: dict[str, RewardSection]
    credit: Credit
    reference: ReferencePenalty | None
    """The penalty for divergence from the reference policy, if it is part of the reward; else None."""
    format: str | None = None
    """The format of replies, needed where thoughts have credit of their own."""
    branches: int | None = None
    """The trajectories of a tree, where groups are trees."""


def rule_code(rules: Iterable[Credit | ThoughtCredit]) -> list[str]:
    """The modules of those of these rules that are plug-ins."""
    return plugin_modules(CREDIT_RULE, [rule.estimator for rule in rules], ESTIMATORS)


def rule_reads(rules: Collection[Credit | ThoughtCredit], further: Sequence[str] = ()) -> dict[str, Any]:
    """What the rules that are plug-ins, and the plug-ins of the `further` modules, read besides their code."""
    packages = {package for rule in rules for package in estimator_of(rule.estimator).distributions}
    return plugin_ingredients([*rule_code(rules), *further], packages)


def _format_code(parameters: CreditParameters) -> list[str]:
    return [] if parameters.format is None else format_code(parameters.format)


def _code(parameters: CreditParameters) -> list[str]:
    """The modules of plug-ins, and those of the library that only some parameters need."""
    penalty_code = [] if parameters.reference is None else ["turnwise.policy.divergence"]
    thought_code = [] if parameters.credit.thought is None else ["turnwise.agent.formats", "turnwise.policy.tokenizer"]
    return [*rule_code(rules_of(parameters.credit)), *_format_code(parameters), *penalty_code, *thought_code]


@task(name="credit", task_run_name="{label}: credit", retries=1)
@depends_on(
    kernel=(
        "turnwise.credit.estimators",
        "turnwise.credit.selection",
        "turnwise.data.trajectory",  # which endings are cut off
    ),
    writes=CREDIT,
    code=_code,
    reads=lambda parameters: rule_reads(rules_of(parameters.credit), _format_code(parameters)),
    platform_bound=False,
)
def credit(
    parameters: CreditParameters,
    *,
    rollout: Reference,
    selection: Reference | None = None,
    values: Reference | None = None,
    reference: Reference | None = None,
    tokenizer: Reference | None = None,
    rescored: dict[str, Reference] | None = None,
    greedy: Reference | None = None,
    label: str = "credit",
) -> Reference:
    """Compute the advantages of a rollout.

    One row per turn: trajectory, turn, its weighted turn reward, the trajectory's outcome, its advantage.

    `selection` says which groups are kept, `values` holds a critic's value of each reply token, `reference` the
    reference policy's log-probabilities; `tokenizer` is needed to find the thought in a reply where thoughts have
    credit of their own. `rescored` holds, by name, what else the rules need of a policy,
    and `greedy` one greedy episode of each task: a task whose greedy episode was lost is left out.

    Trajectories that are left out of the update have no row: those of groups that were not kept
    and, for an estimator that compares within groups, those of a group with fewer than two survivors.
    """
    trajectories = read_arrays(opened(rollout))
    section = parameters.credit
    groups = None if selection is None else frozenset(read_choice(selection).kept)
    rows = trainable(
        trajectories, groups, grouped=any(estimator_of(rule.estimator).grouped for rule in rules_of(section))
    )
    baselines = None if greedy is None else rewards_of_groups(read_arrays(opened(greedy)), parameters.rewards)
    if baselines is not None:
        rows = [index for index in rows if trajectories.group[index] in baselines]
    subset = trajectories.select(rows)
    scores = None if values is None else read_scores(values)
    batch = CreditBatch.of(
        subset,
        parameters.rewards,
        values=None if scores is None else scores.per_token.select(rows),
        bootstrap=None if scores is None else scores.at_end[rows],
        token_rewards=None if reference is None else _penalties(parameters, subset, rows, reference),
        greedy_rewards=None if baselines is None else Ragged.of([baselines[group] for group in subset.group.tolist()]),
        branches=parameters.branches,
        rescored={name: read_scores(each).per_token.select(rows) for name, each in (rescored or {}).items()},
    )
    lengths = None
    if section.thought is not None:  # where a thought ends only a reply's text says, which the arrays are without
        assert parameters.format is not None and tokenizer is not None, "parts are found with format and tokenizer"
        from turnwise.policy.tokenizer import load_frame

        form, frame = format_class(parameters.format)(), load_frame(default_store().folder(tokenizer))
        lengths = thought_lengths(trajectories_of(rollout), rows, form, frame)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        advantages = rollout_advantages(rows, batch, section, lengths)
    with default_store().write("credit") as draft:
        save_credit(draft, batch, advantages, trajectory_count=len(trajectories))
        if notes:
            draft.metrics["estimator_notes"] = len(notes)
            logger.info("%d notes of the estimator; the first: %s", len(notes), notes[0].message)
    return draft.reference


def _penalties(
    parameters: CreditParameters, subset: TrajectoryArrays, rows: Sequence[int], reference: Reference
) -> Ragged:
    """The reward of each reply token for staying close to the reference policy."""
    from turnwise.policy.divergence import reference_rewards

    assert parameters.reference is not None, "a reference was scored that no penalty reads"
    sequences, _ = subset.segments(every_reply=True)
    scores = read_scores(reference).per_token.select(rows)
    return subset.reply_rows(reference_rewards(sequences, scores, parameters.reference))


def save_credit(draft: Draft, batch: CreditBatch, advantages: Advantages, *, trajectory_count: int) -> None:
    """Write the credit table and its metrics into a draft, for a rollout of `trajectory_count` trajectories."""
    assert batch.reply_lengths is not None, "credit is stored reply by reply"
    write_credit(
        draft.folder,
        advantages,
        group=batch.group,
        turn_rewards=batch.turn_rewards,
        outcome=batch.outcome,
        reply_lengths=batch.reply_lengths,
    )
    draft.metrics.update(account(batch, advantages.turns, trajectory_count))
