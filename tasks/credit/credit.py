"""Credit: turns the rewards of a rollout, weighted and placed as configured, into advantages of turns or tokens."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from tasks.credit.scores import by_segment, read_scores
from tasks.credit.select import read_kept
from tasks.stage import stage
from turnwise.agent.formats import format_class
from turnwise.agent.parts import thought_tokens
from turnwise.config.optimization import ReferencePenalty
from turnwise.config.schema import Credit, RewardSection, Section, ThoughtCredit
from turnwise.credit import ESTIMATORS, CreditBatch, estimate, value_targets
from turnwise.credit.parts import divided, on_reply_tokens
from turnwise.data.metrics import anchors, weighted_rewards
from turnwise.data.trajectory import Trajectory
from turnwise.data.trajectory_files import read_trajectories
from turnwise.store import Draft, Reference, default_store

logger = logging.getLogger(__name__)

CREDIT_FILE = "credit.parquet"


class CreditParameters(Section):
    """The parameters of credit."""

    rewards: dict[str, RewardSection]
    credit: Credit
    reference: ReferencePenalty | None
    """The penalty for divergence from the reference policy, if it is part of the reward; else None."""
    format: str | None = None
    """The format of replies, needed where thoughts have credit of their own."""


@dataclass(frozen=True)
class Advantages:
    """The advantages of one trajectory."""

    turns: list[float]
    """One advantage per turn; where tokens have advantages, the mean over the turn's reply tokens."""
    tokens: list[float] | None
    """One advantage per reply token, for a token-level estimator or if thoughts have credit of their own; else None."""
    value_targets: list[float] | None
    """The critic's regression target per reply token; None for an estimator without a critic."""

    def by_turn(self, trajectory: Trajectory) -> list[list[float]] | None:
        """The advantages of reply tokens grouped by turn; None if `tokens` is."""
        if self.tokens is None:
            return None
        following = iter(self.tokens)
        return [[next(following) for _ in turn.reply_tokens] for turn in trajectory.turns]


@stage("credit", platform_bound=False)
def credit(
    parameters: CreditParameters,
    *,
    rollout: Reference,
    selection: Reference | None = None,
    values: Reference | None = None,
    reference: Reference | None = None,
    tokenizer: Reference | None = None,
) -> Reference:
    """Compute the advantages of a rollout.

    One row per turn: trajectory, turn, its weighted turn reward, the trajectory's outcome, its advantage.

    `selection` says which groups are kept, `values` holds a critic's value of each reply token, `reference` the
    reference policy's log-probabilities; `tokenizer` is needed to find the thought in a reply where thoughts have
    credit of their own. Trajectories that are left out of the update have no row: those of groups that were not kept
    and, for an estimator that compares within groups, those of a group with fewer than two survivors.
    """
    trajectories = read_trajectories(default_store().folder(rollout))
    estimator, thought = ESTIMATORS[parameters.credit.estimator], parameters.credit.thought
    grouped = estimator.grouped or (thought is not None and ESTIMATORS[thought.estimator].grouped)
    kept = _kept(trajectories, None if selection is None else read_kept(selection), grouped)
    batch = _batch(parameters, trajectories, kept, values, reference)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        advantages = estimate(parameters.credit.estimator, batch, **parameters.credit.options)
        targets = None
        if "values" in estimator.needs:
            targets = value_targets(parameters.credit.estimator, batch, **parameters.credit.options)
        of_thoughts = None if thought is None else _on_tokens(thought, batch)
    lengths = [[len(turn.reply_tokens) for turn in trajectories[index].turns] for index in kept]
    by_token = advantages if estimator.level == "token" else None
    if thought is not None and of_thoughts is not None:
        actions = by_token or on_reply_tokens(advantages, lengths)
        thought_lengths = _thought_lengths(parameters, [trajectories[index] for index in kept], tokenizer)
        by_token = divided(actions, of_thoughts, lengths, thought_lengths, thought.weight)
    by_turn = advantages if by_token is None else _means(by_token, lengths)
    with default_store().write("credit") as draft:
        save_credit(draft, kept, batch, by_turn, sampled=len(trajectories), by_token=by_token, targets=targets)
        if notes:
            draft.metrics["estimator_notes"] = len(notes)
            logger.info("%d notes of the estimator; the first: %s", len(notes), notes[0].message)
    return draft.reference


def save_credit(
    draft: Draft,
    kept: Sequence[int],
    batch: CreditBatch,
    by_turn: list[list[float]],
    *,
    sampled: int,
    by_token: list[list[float]] | None = None,
    targets: list[list[float]] | None = None,
) -> None:
    """Write the credit table and its metrics into a draft.

    `kept` are indices into the rollout, which has `sampled` trajectories; the rows of `batch` and of the advantages are
    in the same order.
    """
    parquet.write_table(_table(kept, batch, by_turn, by_token, targets), draft.folder / CREDIT_FILE)
    draft.metrics.update(_account(batch, by_turn, sampled))


def read_credit(reference: Reference) -> dict[int, Advantages]:
    """The advantages of each trajectory that has any, by its index in the rollout."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in parquet.read_table(default_store().folder(reference) / CREDIT_FILE).to_pylist():
        rows.setdefault(row["trajectory"], []).append(row)
    return {
        index: Advantages(
            turns=[row["advantage"] for row in turns],
            tokens=_joined(turns, "token_advantages"),
            value_targets=_joined(turns, "value_targets"),
        )
        for index, turns in rows.items()
    }


def _joined(turns: list[dict[str, Any]], column: str) -> list[float] | None:
    if turns[0][column] is None:
        return None
    return [value for row in turns for value in row[column]]


def _kept(trajectories: Sequence[Trajectory], groups: frozenset[int] | None, with_company: bool) -> list[int]:
    """Indices of the trajectories to train on: those with a trained reply, in a group that was kept.

    `with_company` also requires a group of at least two such trajectories.
    """

    def has_replies(trajectory: Trajectory) -> bool:
        return any(turn.trained for turn in trajectory.turns)

    sizes: dict[int, int] = {}
    for trajectory in trajectories:
        sizes[trajectory.group] = sizes.get(trajectory.group, 0) + has_replies(trajectory)
    return [
        index
        for index, trajectory in enumerate(trajectories)
        if has_replies(trajectory)
        and (sizes[trajectory.group] > 1 or not with_company)
        and (groups is None or trajectory.group in groups)
    ]


def _batch(
    parameters: CreditParameters,
    trajectories: Sequence[Trajectory],
    kept: Sequence[int],
    values: Reference | None,
    reference: Reference | None,
) -> CreditBatch:
    chosen = [trajectories[index] for index in kept]
    rewards = [weighted_rewards(trajectory, parameters.rewards) for trajectory in chosen]
    scores = None if values is None else read_scores(values)
    return CreditBatch(
        group=[trajectory.group for trajectory in chosen],
        turn_rewards=[of_turns for of_turns, _ in rewards],
        outcome=[outcome for _, outcome in rewards],
        reply_lengths=[[len(turn.reply_tokens) for turn in trajectory.turns] for trajectory in chosen],
        values=None if scores is None else [scores.per_token[index] for index in kept],
        anchors=anchors(chosen),
        token_rewards=None if reference is None else _penalties(parameters, chosen, kept, reference),
        truncated=[trajectory.ending.truncated for trajectory in chosen],
        bootstrap=None if scores is None else [scores.at_end[index] for index in kept],
        trained=[[turn.trained for turn in trajectory.turns] for trajectory in chosen],
    )


def _on_tokens(thought: ThoughtCredit, batch: CreditBatch) -> list[list[float]]:
    """The advantage of every reply token by the estimator for thoughts."""
    advantages = estimate(thought.estimator, batch, **thought.options)
    if ESTIMATORS[thought.estimator].level == "token":
        return advantages
    assert batch.reply_lengths is not None, "a batch of trajectories knows the lengths of replies"
    return on_reply_tokens(advantages, batch.reply_lengths)


def _thought_lengths(
    parameters: CreditParameters, chosen: Sequence[Trajectory], tokenizer: Reference | None
) -> list[list[int]]:
    """The number of thought tokens in each reply, by trajectory and turn."""
    from turnwise.policy.tokenizer import ChatFrame, load_tokenizer

    assert parameters.format is not None and tokenizer is not None, "parts are found with the format and the tokenizer"
    form = format_class(parameters.format)()
    frame = ChatFrame(load_tokenizer(default_store().folder(tokenizer)))
    return [[thought_tokens(turn, form, frame) for turn in trajectory.turns] for trajectory in chosen]


def _penalties(
    parameters: CreditParameters, chosen: Sequence[Trajectory], kept: Sequence[int], reference: Reference
) -> list[list[float]]:
    """The reward of each reply token for staying close to the reference policy."""
    from turnwise.policy.learner.divergence import reference_rewards

    assert parameters.reference is not None, "a reference was scored that no penalty reads"
    segments = [trajectory.segments(every_reply=True) for trajectory in chosen]
    scores = read_scores(reference).per_token
    of_segments = iter(
        reference_rewards(
            [segment for of_trajectory in segments for segment in of_trajectory],
            by_segment([scores[index] for index in kept], segments),
            parameters.reference,
        )
    )
    return [
        [reward for rewards in islice(of_segments, len(of_trajectory)) for reward in rewards]
        for of_trajectory in segments
    ]


def _means(advantages: list[list[float]], lengths: list[list[int]]) -> list[list[float]]:
    """The mean over the reply tokens of each turn; 0 for an empty reply."""
    means = []
    for row, of_turns in zip(advantages, lengths, strict=True):
        ends = [sum(of_turns[: turn + 1]) for turn in range(len(of_turns))]
        parts = [row[end - length : end] for end, length in zip(ends, of_turns, strict=True)]
        means.append([math.fsum(part) / len(part) if part else 0.0 for part in parts])
    return means


def _table(
    kept: Sequence[int],
    batch: CreditBatch,
    by_turn: list[list[float]],
    by_token: list[list[float]] | None,
    targets: list[list[float]] | None,
) -> pa.Table:
    assert batch.reply_lengths is not None, "credit is stored reply by reply"
    rows = []
    for position, index in enumerate(kept):
        end = 0
        for turn, length in enumerate(batch.reply_lengths[position]):
            begin, end = end, end + length
            rows.append(
                {
                    "trajectory": index,
                    "group": batch.group[position],
                    "turn": turn,
                    "turn_reward": batch.turn_rewards[position][turn],
                    "outcome": batch.outcome[position],
                    "advantage": by_turn[position][turn],
                    "token_advantages": by_token[position][begin:end] if by_token else None,
                    "value_targets": targets[position][begin:end] if targets else None,
                }
            )
    integers = [(name, pa.int32()) for name in ("trajectory", "group", "turn")]
    numbers = [(name, pa.float64()) for name in ("turn_reward", "outcome", "advantage")]
    lists = [(name, pa.list_(pa.float64())) for name in ("token_advantages", "value_targets")]
    return pa.Table.from_pylist(rows, schema=pa.schema(integers + numbers + lists))


def _account(batch: CreditBatch, advantages: list[list[float]], sampled: int) -> dict[str, float]:
    """Metrics of a batch: rewards, advantages, and `zero_variance_groups`, the groups whose advantages are all 0."""
    if not len(batch):
        return {"groups": 0, "zero_variance_groups": 0, "left_out": sampled}
    totals = [math.fsum(turns) + outcome for turns, outcome in zip(batch.turn_rewards, batch.outcome, strict=True)]
    flat = [value for turns in advantages for value in turns]
    mean = math.fsum(flat) / len(flat)
    groups = batch.members.values()
    spread = [_deviation([totals[index] for index in members]) for members in groups]
    return {
        "groups": len(groups),
        "zero_variance_groups": sum(all(not any(advantages[index]) for index in members) for members in groups),
        "left_out": sampled - len(batch),
        "reward": math.fsum(totals) / len(totals),
        "reward_deviation_within_groups": math.fsum(spread) / len(spread),
        "advantage_mean": mean,
        "advantage_deviation": _deviation(flat),
        "advantage_maximum": max(abs(value) for value in flat),
    }


def _deviation(values: list[float]) -> float:
    """The population standard deviation; used in metrics only."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
