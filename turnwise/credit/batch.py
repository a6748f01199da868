"""What an estimator takes and returns: the rewards of trajectories, weighted as configured, and their advantages.

A `CreditBatch` has no observation tokens, so they cannot be mistaken for steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from turnwise.data.arrays import Integers, Numbers, Ragged, TrajectoryArrays, offsets_of
from turnwise.data.tolerance import alike
from turnwise.errors import CreditError

if TYPE_CHECKING:  # a section's values are parameters of a stage, and are in its cache key by themselves
    from turnwise.config.schema import RewardSection

PER_TURN = ("reply_lengths", "anchors", "answer_scores", "start_answer_scores", "nodes", "surprisals", "trained")
PER_TOKEN = ("values", "token_rewards", "score_norms", "hindsight")
PER_TRAJECTORY = ("outcome", "truncated", "bootstrap")
NAMED = ("named_rewards", "reward_weights")
NUMBERS = (
    *("turn_rewards", "outcome", "bootstrap", *PER_TOKEN, *NAMED, "greedy_rewards"),
    *("answer_scores", "start_answer_scores", "surprisals"),
)
FLAGS = ("truncated", "trained")
NEEDS: Mapping[str, str] = {
    "reply_lengths": "the tokens of each turn's reply",
    "values": "a critic's values per reply token",
    "anchors": "the world's state before each turn",
    "named_rewards": "each named reward of a trajectory",
    "reward_weights": "the weight of each named reward",
    "greedy_rewards": "what a greedy episode of the same task earns",
    "score_norms": "the squared norm of each reply token's score",
    "hindsight": "what each reply token gains in log-probability under a teacher",
    "trees": "the tree that each trajectory is a branch of",
    "nodes": "which turns the branches of a tree share",
    "surprisals": "how improbable each turn's reply was",
    "answer_scores": "the policy's log-probability of the right answer before each turn",
    "start_answer_scores": "the warm start's log-probability of the right answer before each turn",
}
"""The inputs that a rule may declare as needed, in words."""
Rescored = Literal["score_norms", "answer_scores", "start_answer_scores", "hindsight"]
RESCORED: tuple[Rescored, ...] = get_args(Rescored)
"""Those of them for which a policy reads the rollout once more."""
COMES_WITH: Mapping[str, tuple[str, ...]] = {"values": ("reply_lengths", "truncated", "bootstrap")}
"""The inputs that belong to another one."""
Rewards = Literal["outcome", "merged"]
"""Which rewards make up a trajectory's: the outcome, or the outcome plus its turn rewards."""


@dataclass(frozen=True)
class CreditBatch:
    """Rewards and critic values of a batch of trajectories; every field has one entry per trajectory.

    Only the first three fields are required; an estimator names the others that it needs. Rows of numbers are given as
    `Ragged` arrays or as nested sequences, which are made arrays of double precision; those per token are one row per
    trajectory, over the reply tokens of all its turns. Raises CreditError when a field does not match the trajectories,
    their turns or their reply tokens, or holds a number that is not finite.
    """

    group: Sequence[int]
    """The group of each trajectory; trajectories of the same group have the same task."""
    turn_rewards: Ragged
    """The weighted sum of turn-level rewards, one number per turn; a turn with reward 0 has an entry, too."""
    outcome: Sequence[float]
    """The weighted sum of outcome-level rewards."""
    reply_lengths: Ragged | None = None
    """The number of reply tokens of each turn, at least 1."""
    values: Ragged | None = None
    """A critic's values, one per reply token of the whole trajectory: of the state before that token was sampled."""
    anchors: Sequence[Sequence[str | None]] | None = None
    """The world's state before each turn, None where the world does not report it. Equal texts are equal states."""
    token_rewards: Ragged | None = None
    """Rewards per reply token of the whole trajectory, such as a KL penalty."""
    truncated: Sequence[bool] | None = None
    """Whether a limit cut the trajectory off before it ended by itself. Estimators with a critic use `bootstrap` as the
    value after the cut; all others treat the cut as an end."""
    bootstrap: Sequence[float] | None = None
    """The critic's value at the cut. Not read for a trajectory that ended by itself."""
    named_rewards: Ragged | None = None
    """Each named reward of the trajectory, summed over its turns and not weighted: one number per reward of the
    configuration, in its order."""
    reward_weights: Ragged | None = None
    """The weight of each of these rewards, the same for every trajectory."""
    greedy_rewards: Ragged | None = None
    """Two numbers per trajectory: the turn-level and the outcome reward of its task's greedy episode, weighted."""
    score_norms: Ragged | None = None
    """One per reply token of the whole trajectory: 1 - 2 pi(token) + sum of pi^2, see `turnwise.policy.score_norms`."""
    hindsight: Ragged | None = None
    """One per reply token of the whole trajectory, in nats: its log-probability under the policy that is shown what
    came of the episode (or another policy, the rule's `teacher`), minus the one with which it was sampled; see
    `turnwise.agent.hindsight`."""
    answer_scores: Ragged | None = None
    """Before each turn: the mean log-probability, in nats, of the tokens of the task's right answer, were it given in
    that turn; see `turnwise.agent.hindsight`."""
    start_answer_scores: Ragged | None = None
    """The same of the policy that training began with, which is never trained."""
    trees: Sequence[int] | None = None
    """Of groups of trees: the tree within the group that the trajectory is a branch of, from 0; see
    `turnwise.agent.branching`."""
    nodes: Ragged | None = None
    """Of groups of trees: the number of the node that each turn is, from 0. Branches share a node where they are the
    same up to the end of that turn."""
    surprisals: Ragged | None = None
    """Of groups of trees: the mean of -log mu over the tokens of each turn's reply, in nats, with which probability mu
    they were sampled."""
    trained: Ragged | None = None
    """Which turns are trained; None: all. A turn that is not trained has advantage 0 and is left out of whitening. It
    is part of the episode nevertheless: its rewards count in every return, its tokens are time steps, and a group's
    mean and deviation include it."""

    def __post_init__(self) -> None:
        present = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        counts = {name: len(getattr(self, name)) for name in present}
        if len(set(counts.values())) != 1:
            raise CreditError(
                f"a batch has one entry per trajectory in every field; found {counts}", "TW-batch-misaligned"
            )
        if self.reply_lengths is None and (per_token := [name for name in PER_TOKEN if name in present]):
            raise CreditError(
                f"{' and '.join(per_token)} are per reply token; found them without reply_lengths",
                "TW-rule-lacks-input",
            )
        self._require_entries()
        self._require_named()
        self._require_sense()
        self._make_arrays()

    @classmethod
    def of(
        cls,
        trajectories: TrajectoryArrays,
        rewards: Mapping[str, RewardSection],
        *,
        values: Ragged | None = None,
        bootstrap: Numbers | None = None,
        token_rewards: Ragged | None = None,
        greedy_rewards: Ragged | None = None,
        rescored: Mapping[str, Ragged] | None = None,
        branches: int | None = None,
    ) -> CreditBatch:
        """The batch of these trajectories, with their rewards weighted as configured.

        `rescored` has inputs of `RESCORED` by name, one row per trajectory. `branches` is the number of trajectories of
        a tree where groups are trees.
        """
        turn_rewards, outcome = weighted_rewards(trajectories, rewards)
        totals = np.array([*reward_totals(trajectories, rewards).values()])
        weights = [section.weight for section in rewards.values()]
        return cls(
            group=trajectories.group.tolist(),
            turn_rewards=turn_rewards,
            outcome=outcome.tolist(),
            reply_lengths=trajectories.turn_rows(trajectories.reply_tokens.lengths),
            values=values,
            anchors=anchors(trajectories),
            token_rewards=token_rewards,
            truncated=trajectories.truncated.tolist(),
            bootstrap=None if bootstrap is None else bootstrap.tolist(),
            named_rewards=Ragged.of(totals.reshape(len(rewards), len(trajectories)).T),
            reward_weights=Ragged.of([weights] * len(trajectories)),
            trained=trajectories.turn_rows(trajectories.trained),
            greedy_rewards=greedy_rewards,
            trees=None if branches is None else (trajectories.replica // branches).tolist(),
            nodes=None if branches is None else nodes(trajectories, branches),
            surprisals=None if branches is None else surprisals(trajectories),
            **(rescored or {}),
        )

    def __len__(self) -> int:
        return len(self.group)

    def select(self, order: Sequence[int]) -> CreditBatch:
        """The batch of these trajectories, in this order."""
        selected: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            rows = getattr(self, name)
            if rows is not None:
                selected[name] = rows.select(order) if isinstance(rows, Ragged) else [rows[index] for index in order]
        return CreditBatch(**selected)

    def with_only(self, needs: Sequence[str]) -> CreditBatch:
        """The batch with the rewards, these inputs and what comes with them, and nothing else."""
        needed = {"group", "turn_rewards", "outcome", *needs}
        needed.update(other for need in needs for other in COMES_WITH.get(need, ()))
        without: dict[str, Any] = {field.name: None for field in fields(self) if field.name not in needed}
        return replace(self, **without)

    @property
    def members(self) -> dict[int, list[int]]:
        """The indices of each group's trajectories, in order."""
        members: dict[int, list[int]] = {}
        for index, group in enumerate(self.group):
            members.setdefault(group, []).append(index)
        return members

    @property
    def turns(self) -> list[int]:
        """The number of turns of each trajectory."""
        turns: list[int] = self.turn_rewards.lengths.tolist()
        return turns

    @property
    def last_turns(self) -> Integers:
        """Where each trajectory's last turn is among the turns of the batch, [trajectories]."""
        return self.turn_rewards.offsets[1:] - 1

    @property
    def trained_turns(self) -> Ragged:
        """Which turns of each trajectory are trained."""
        if self.trained is not None:
            return self.trained
        return Ragged(np.ones(len(self.turn_rewards.values), dtype=bool), self.turn_rewards.offsets)

    @property
    def trained_tokens(self) -> Ragged:
        """Which reply tokens of each trajectory are trained. Raises CreditError without `reply_lengths`."""
        return self.on_reply_tokens(self.trained_turns)

    @property
    def turn_tokens(self) -> Integers:
        """The reply tokens of turn k of the batch are `turn_tokens[k] : turn_tokens[k + 1]`, [turns + 1].

        Raises CreditError without `reply_lengths`.
        """
        if self.reply_lengths is None:
            raise CreditError(
                "reply_lengths must be given to place anything on tokens; found none in the batch",
                "TW-rule-lacks-input",
            )
        return offsets_of(self.reply_lengths.values)

    def spans(self, index: int) -> list[range]:
        """The index range of each turn's tokens among the trajectory's reply tokens.

        Raises CreditError without `reply_lengths`.
        """
        first, last = self.turn_rewards.offsets[index : index + 2]
        ends = (self.turn_tokens[first : last + 1] - self.turn_tokens[first]).tolist()
        return [range(begin, end) for begin, end in pairwise(ends)]

    def scores(self, rewards: Rewards) -> Numbers:
        """The reward of each trajectory, without rewards per token; `merged` adds its turn rewards to the outcome."""
        turn_sums = [math.fsum(row) if rewards == "merged" else 0.0 for row in self.turn_rewards.tolist()]
        return np.array(self.outcome, dtype=np.float64) + np.array(turn_sums, dtype=np.float64)

    def totals(self, rewards: Rewards) -> Numbers:
        """`scores` plus the rewards per token of each trajectory."""
        token_sums = [math.fsum(row) for row in self.token_rewards_of_turns.tolist()]
        return self.scores(rewards) + np.array(token_sums, dtype=np.float64)

    @property
    def token_rewards_of_turns(self) -> Ragged:
        """The sum of each turn's rewards per token; 0 where the batch has none."""
        sums = np.zeros(len(self.turn_rewards.values))
        if self.token_rewards is not None:
            sums[:] = [math.fsum(row) for row in Ragged(self.token_rewards.values, self.turn_tokens).tolist()]
        return Ragged(sums, self.turn_rewards.offsets)

    def on_every_turn(self, numbers: Numbers) -> Ragged:
        """One number per trajectory, spread to all its turns."""
        return Ragged(np.repeat(numbers, self.turn_rewards.lengths), self.turn_rewards.offsets)

    def on_reply_tokens(self, of_turns: Ragged) -> Ragged:
        """One entry per turn, spread to the turn's reply tokens: one row per trajectory.

        Raises CreditError without `reply_lengths`.
        """
        tokens = self.turn_tokens
        return Ragged(np.repeat(of_turns.values, np.diff(tokens)), tokens[self.turn_rewards.offsets])

    def in_groups(self, numbers: Numbers, compare: Callable[[Numbers], Numbers]) -> Numbers:
        """One number per trajectory, compared within each group: `compare` maps a group's numbers to as many."""
        comparisons = np.zeros(len(self))
        for members in self.members.values():
            comparisons[members] = compare(numbers[members])
        return comparisons

    def _require_entries(self) -> None:
        """Raise CreditError unless each field has one entry per turn, or per reply token, of each trajectory."""
        turns = _lengths(self.turn_rewards)
        for index in np.flatnonzero(turns == 0).tolist():
            raise CreditError(
                f"a trajectory has at least one turn; trajectory {index} has none: leave it out", "TW-no-turns"
            )
        self._require_lengths(PER_TURN, turns, "turn")
        if self.reply_lengths is None:
            return
        self._require(
            "reply_lengths",
            "must be counts of at least 1",
            lambda entry: _is_number(entry) and entry >= 1 and entry == int(entry),
        )
        tokens = np.array([sum(row) for row in self.reply_lengths], dtype=np.int64)
        self._require_lengths(PER_TOKEN, tokens, "reply token")

    def _require_lengths(self, names: Sequence[str], expected: np.ndarray, entry: str) -> None:
        """Raise CreditError unless each of these inputs that is there has so many entries for each trajectory."""
        for name in (name for name in names if getattr(self, name) is not None):
            lengths = _lengths(getattr(self, name))
            for index in np.flatnonzero(lengths != expected).tolist():
                raise CreditError(
                    f"{name} must have one entry per {entry}; trajectory {index} has {expected[index]} {entry}s, found "
                    f"{lengths[index]}",
                    "TW-batch-misaligned",
                )

    def _require_named(self) -> None:
        """Raise CreditError unless every trajectory has the same rewards, each with its weight."""
        inputs = {name: getattr(self, name) for name in NAMED if getattr(self, name) is not None}
        numbers = {name: sorted({len(row) for row in rows}) for name, rows in inputs.items()}
        if inputs and (len(inputs) < len(NAMED) or len({count for counts in numbers.values() for count in counts}) > 1):
            raise CreditError(
                f"every trajectory must have the same {' and '.join(NAMED)}; found numbers of {numbers}",
                "TW-batch-names-differ",
            )

    def _require_sense(self) -> None:
        """Raise CreditError unless numbers are finite, flags are true or false, and anchors are texts or None."""
        for name in NUMBERS:
            self._require(name, "must hold finite numbers", _is_number)
        for name in FLAGS:
            self._require(name, "must be true or false", lambda entry: entry in (True, False))
        self._require("anchors", "must be texts or None", lambda entry: isinstance(entry, str | None))

    def _require(self, name: str, must: str, accepted: Callable[[Any], bool]) -> None:
        """Raise CreditError for the first entry of a field that is not accepted."""
        field = getattr(self, name)
        if field is None or (isinstance(field, Ragged) and _is_sound(name, field.values)):
            return
        for index, row in enumerate([[entry] for entry in field] if name in PER_TRAJECTORY else field):
            for entry in row:
                if not accepted(entry):
                    raise CreditError(f"{name} {must}; trajectory {index} has {entry!r}", "TW-batch-value")

    def _make_arrays(self) -> None:
        """Replace rows of numbers by arrays, and numbers per trajectory by Python's."""
        arrays: dict[str, Any] = {}
        for name in ("turn_rewards", *PER_TURN, "greedy_rewards", *PER_TOKEN, *NAMED):
            if name == "anchors":
                continue
            dtype = {"reply_lengths": np.int64, "nodes": np.int64, "trained": np.bool_}.get(name, np.float64)
            if getattr(self, name) is not None:
                arrays[name] = Ragged.of(getattr(self, name), dtype)
        for name in PER_TRAJECTORY:
            if getattr(self, name) is not None:
                arrays[name] = [bool(each) if name in FLAGS else float(each) for each in getattr(self, name)]
        for name, values in arrays.items():  # the dataclass is frozen: plain assignment raises
            object.__setattr__(self, name, values)


def nodes(trajectories: TrajectoryArrays, branches: int) -> Ragged:
    """The nodes of trees of so many `branches`, by trajectory and turn: `CreditBatch.nodes`."""
    numbers: dict[Any, int] = {}
    turn_nodes: list[int] = []
    tokens = zip(trajectories.observation_tokens, trajectories.reply_tokens, strict=True)
    for index, turns in enumerate(np.diff(trajectories.offsets).tolist()):
        node: Any = (int(trajectories.group[index]), int(trajectories.replica[index]) // branches)
        for _ in range(turns):
            observed, replied = next(tokens)
            node = numbers.setdefault((node, tuple(observed), tuple(replied)), len(numbers))
            turn_nodes.append(node)
    return trajectories.turn_rows(np.array(turn_nodes, dtype=np.int64))


def surprisals(trajectories: TrajectoryArrays) -> Ragged:
    """The mean of -log mu over the tokens of each reply, by trajectory and turn: `CreditBatch.surprisals`."""
    means = [-math.fsum(row) / len(row) for row in trajectories.log_probabilities.tolist()]
    return trajectories.turn_rows(np.array(means, dtype=np.float64))


def anchors(trajectories: TrajectoryArrays) -> list[list[str | None]] | None:
    """The anchor state before each turn, by trajectory and turn; None where any acting turn lacks one."""
    if any(state is None for state in trajectories.states[trajectories.acts]):
        return None
    return trajectories.turn_rows(trajectories.states).tolist()


def weighted_rewards(trajectories: TrajectoryArrays, rewards: Mapping[str, RewardSection]) -> tuple[Ragged, Numbers]:
    """The weighted turn-level reward of each turn, one row per trajectory, and the weighted outcomes, [trajectories].

    The configuration decides which named rewards are of which level, and their weights. With several attempts,
    turn-level rewards stay with their turns in every attempt; the outcome is that of the last attempt.
    """
    turn_rewards, outcome = np.zeros(len(trajectories.trained)), np.zeros(len(trajectories))
    totals = reward_totals(trajectories, rewards)
    for name, section in rewards.items():
        if section.level == "outcome":
            outcome += section.weight * totals[name]
        elif name in trajectories.rewards:
            turn_rewards += section.weight * trajectories.rewards[name]
    return trajectories.turn_rows(turn_rewards), outcome


def reward_totals(trajectories: TrajectoryArrays, rewards: Mapping[str, RewardSection]) -> dict[str, Numbers]:
    """By name, the reward of each trajectory, not weighted, [trajectories].

    Of the turn level over all attempts, of the outcome over the last; 0 for a reward that no turn has.
    """
    none = np.zeros(len(trajectories.trained))
    masks = {"turn": np.ones_like(trajectories.last_attempt), "outcome": trajectories.last_attempt}
    return {
        name: trajectories.sums(np.where(masks[section.level], trajectories.rewards.get(name, none), 0.0))
        for name, section in rewards.items()
    }


def weighted_returns(trajectories: TrajectoryArrays, rewards: Mapping[str, RewardSection]) -> list[float]:
    """The sum of all weighted rewards of each trajectory, turn-level and outcome."""
    turn_rewards, outcomes = weighted_rewards(trajectories, rewards)
    return [math.fsum(row) + outcome for row, outcome in zip(turn_rewards.tolist(), outcomes.tolist(), strict=True)]


def rewards_of_groups(
    episodes: TrajectoryArrays, rewards: Mapping[str, RewardSection]
) -> dict[int, tuple[float, float]]:
    """By group, the weighted turn-level and outcome rewards of its one episode."""
    turn_rewards, outcome = weighted_rewards(episodes, rewards)
    pairs = zip(map(math.fsum, turn_rewards.tolist()), outcome.tolist(), strict=True)
    return dict(zip(episodes.group.tolist(), pairs, strict=True))


def _lengths(rows: Ragged | Sequence[Sequence[Any]]) -> Integers:
    return rows.lengths if isinstance(rows, Ragged) else np.array([len(row) for row in rows], dtype=np.int64)


def _is_sound(name: str, values: NDArray[Any]) -> bool:
    """Whether an array needs no second look at its entries, one by one."""
    if name in FLAGS:
        return values.dtype == bool
    if name == "reply_lengths":
        return values.dtype.kind == "i" and bool((values >= 1).all())
    return values.dtype.kind in "fi" and bool(np.isfinite(values).all())


def _is_number(entry: Any) -> bool:
    """Whether an entry is a finite number, of Python's or of numpy's types."""
    return hasattr(entry, "__float__") and math.isfinite(entry)


def turn_means(batch: CreditBatch, tokens: Ragged) -> Ragged:
    """The mean over the reply tokens of each turn: one row per trajectory."""
    rows = Ragged(tokens.values, batch.turn_tokens).tolist()
    return Ragged(np.array([math.fsum(row) / len(row) for row in rows]), batch.turn_rewards.offsets)


def account(batch: CreditBatch, advantages: Ragged, sampled: int) -> dict[str, float]:
    """The metrics of a batch with these advantages per turn, out of `sampled` trajectories.

    `left_out` counts trajectories that are not in the batch, `zero_variance_groups` those whose advantages
    are all 0. The others are about rewards (turn rewards and outcome added up) and about advantages of turns.
    """
    if not len(batch):
        return {"groups": 0, "zero_variance_groups": 0, "left_out": sampled}
    rows = zip(batch.turn_rewards.tolist(), batch.outcome, strict=True)
    rewards = [math.fsum(turns) + outcome for turns, outcome in rows]
    groups = batch.members.values()
    spread = [_deviation([rewards[index] for index in members]) for members in groups]
    flat = advantages.values.tolist()
    silent = [not row.any() for row in advantages]
    return {
        "groups": len(groups),
        "zero_variance_groups": sum(all(silent[index] for index in members) for members in groups),
        "left_out": sampled - len(batch),
        "reward": math.fsum(rewards) / len(rewards),
        "reward_deviation_within_groups": math.fsum(spread) / len(spread),
        "advantage_mean": math.fsum(flat) / len(flat),
        "advantage_deviation": _deviation(flat),
        "advantage_maximum": max(abs(value) for value in flat),
    }


def _deviation(values: list[float]) -> float:
    """The population standard deviation; used in metrics only."""
    if alike(values):
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
