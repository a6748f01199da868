"""The credit study: every advantage estimator on the same batch, compared with the true advantages by replay.

For each rule it measures the noise of its gradient (`turnwise.credit_study.gradient_noise`) and how its advantages
agree with the true ones (`turnwise.credit_study.truth`). Advantages come from `turnwise.credit.estimate` with each
estimator's default options, with two exceptions. Estimators that can choose which rewards count use all of them, since
the truth is about the whole return; and gamma is 1 where GiGPO and HGPO discount by turns. `grpo, outcome` is judged
without turn rewards, and so are `information-gain` and `trace`, which put gains of their own in their place; `trace`
and `bi-level-gae` keep their published discounts. A rule on tokens is judged by the mean over each reply's.

`study_replays` goes from episodes and continuations to `examine`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from turnwise.checking.credit_bias import Rule
from turnwise.config.options import read_options
from turnwise.config.schema import Credit, RewardSection
from turnwise.credit import ESTIMATORS, CreditBatch, estimate, estimator_of, turn_means
from turnwise.credit.batch import rewards_of_groups, weighted_returns
from turnwise.credit_study.gradient_noise import GradientNoise, gradient_noise, group_gradients
from turnwise.credit_study.truth import Agreement, Decisions, Truth, agreement, replayed_truth
from turnwise.data.arrays import Ragged, TrajectoryArrays
from turnwise.data.scores import Scores
from turnwise.errors import CreditError, WorldLost

RULES: Sequence[Rule] = (
    Rule("grpo, outcome", "grpo", {"rewards": "outcome"}),
    Rule("grpo, merged", "grpo", {"rewards": "merged"}),
    Rule("rloo, merged", "rloo", {"rewards": "merged"}),
    Rule("mt-grpo, paper", "mt-grpo", {"rule": "paper"}),
    Rule("mt-grpo, per-index", "mt-grpo", {"rule": "per-index"}),
    Rule("mt-grpo, padded", "mt-grpo", {"rule": "padded"}),
    Rule("mt-grpo, return-to-go", "mt-grpo", {"rule": "return-to-go"}),
    Rule("reinforce++", "reinforce++", {"rewards": "turn"}),
    Rule("reinforce++-baseline", "reinforce++-baseline", {"rewards": "merged"}),
    Rule("gigpo", "gigpo", {"rewards": "merged", "gamma": 1.0}),
    Rule("hgpo", "hgpo", {"rewards": "merged", "gamma": 1.0}),
    Rule("opo", "opo", {"rewards": "merged"}),
    Rule("gpg", "gpg", {"rewards": "merged"}),
    Rule("maxrl", "maxrl", {"rewards": "merged"}),
    Rule("grpo-passk", "grpo-passk", {"rewards": "merged"}),
    Rule("gdpo", "gdpo"),
    Rule("turn-reinforce", "turn-reinforce"),
    Rule("gae", "gae"),
    Rule("turn-gae", "turn-gae"),
    Rule("bi-level-gae", "bi-level-gae"),
    Rule("length-adaptive-gae", "length-adaptive-gae"),
    Rule("cross-level-gae", "cross-level-gae"),
    Rule("archer", "archer"),
    Rule("sweet-rl", "sweet-rl"),
    Rule("remax", "remax"),
    Rule("information-gain", "information-gain"),
    Rule("trace", "trace"),
    Rule("self-distillation", "self-distillation"),
    Rule("tree-grpo", "tree-grpo"),
    Rule("at2po", "at2po"),
    Rule("optimal-token-baseline", "optimal-token-baseline", {"rewards": "merged"}),
)
"""The rules, in the order in which they are shown."""

TRUTH = "truth by replay"


def same_rule(estimator: str, options: Mapping[str, Any]) -> Rule | None:
    """The rule of `RULES` that is this estimator with these options, defaults counted; None: there is none.

    Raises ConfigurationError for options that the estimator does not have.
    """
    if estimator not in ESTIMATORS:
        return None
    function = ESTIMATORS[estimator].function
    settings = read_options(estimator, function, options)
    candidates = (rule for rule in RULES if rule.estimator == estimator)
    return next((rule for rule in candidates if read_options(estimator, function, rule.options) == settings), None)


def title_of(variant: str, credit: Credit) -> str:
    """The title in a study of the rule that a variant of the experiment has.

    Where its thoughts have credit of their own, what is judged is the rule of its actions.
    """
    rule = same_rule(credit.estimator, credit.options)
    if credit.thought is not None:
        return f"variant {variant}, of actions"
    return f"variant {variant}" if rule is None else rule.title


@dataclass(frozen=True)
class RuleFigures:
    """The results of one rule, or of the true advantages themselves."""

    title: str
    gradient: GradientNoise
    agreement: Agreement | None
    """None for the truth."""


@dataclass(frozen=True)
class Study:
    """The results of the credit study on one batch."""

    figures: tuple[RuleFigures, ...]
    """The results, those of the truth first."""
    left_out: Mapping[str, str]
    """Rules that cannot be judged on this batch, each with the reason."""
    tasks: int
    trajectories: int
    turns: int
    reliability: float | None
    """The reliability of the truth, 0 to 1: see `turnwise.credit_study.truth.Truth`."""
    error_of_no_credit: float
    """The mean absolute true advantage: the error of a rule whose advantages are all 0."""
    error_of_measuring: float
    """The mean absolute error of the measured truth, assuming normal noise; a perfect rule would have this error."""

    @property
    def slope_turns(self) -> int:
        """The number of turns with slopes."""
        return max((len(rule.agreement.slopes) for rule in self.figures if rule.agreement), default=0)

    def to_json(self) -> str:
        """The study as JSON text."""
        return _ADAPTER.dump_json(self, indent=1).decode()

    @classmethod
    def from_json(cls, text: str) -> Study:
        """The study that `to_json` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(Study)


def examine(
    batch: CreditBatch,
    truth: Truth,
    score_vectors: NDArray[np.floating],
    decisions: Decisions,
    *,
    turn_limit: int,
    seed: int,
    further: Sequence[Rule] = (),
) -> Study:
    """Run the study on one batch, of `RULES` and of the `further` ones.

    `score_vectors` is [turns, dimensions], one row per turn, see `turnwise.credit_study.gradient_noise`; `turn_limit`
    is the world's. Raises CreditError if the batch has fewer than two groups.
    """
    if len(batch.members) < 2:
        raise CreditError(
            f"credit is compared across tasks, of which there must be at least 2; found {len(batch.members)}",
            "TW-too-few-tasks",
        )
    vectors = np.asarray(score_vectors, dtype=np.float64)
    true_gradients = group_gradients(truth.advantages, vectors, batch.group)
    figures = [RuleFigures(TRUTH, gradient_noise(true_gradients, None, seed=seed), None)]
    left_out: dict[str, str] = {}
    for rule in (*RULES, *further):
        if reason := _reason_left_out(rule, batch, turn_limit):
            left_out[rule.title] = reason
            continue
        advantages = advantages_of_turns(rule, batch)
        gradients = group_gradients(advantages, vectors, batch.group)
        figures.append(
            RuleFigures(
                rule.title,
                gradient_noise(gradients, true_gradients, seed=seed),
                agreement(advantages, truth, batch.group, decisions, seed=seed),
            )
        )
    values = [abs(value) for row in truth.advantages for value in row]
    errors = [math.sqrt(variance) for row in truth.variances for variance in row]
    return Study(
        figures=tuple(figures),
        left_out=left_out,
        tasks=len(batch.members),
        trajectories=len(batch),
        turns=sum(batch.turns),
        reliability=truth.reliability,
        error_of_no_credit=math.fsum(values) / len(values),
        error_of_measuring=math.sqrt(2 / math.pi) * math.fsum(errors) / len(errors),
    )


def advantages_of_turns(rule: Rule, batch: CreditBatch) -> list[list[float]]:
    """A rule's advantages, one number per turn of each trajectory; of a rule on tokens, the mean over the reply."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a group left with one trajectory has no signal, which the figures show
        advantages = estimate(rule.estimator, batch, **rule.options)
    turn_advantages = advantages if estimator_of(rule.estimator).level == "turn" else turn_means(batch, advantages)
    rows: list[list[float]] = turn_advantages.tolist()
    return rows


_LACKING = {
    "reply_lengths": "it needs the tokens of each reply, which these episodes do not have",
    "values": "it needs a critic, of which these episodes have no values",
    "anchors": "it needs anchor states, which this world does not tell",
    "named_rewards": "it needs each reward by its name, which these episodes do not have",
    "reward_weights": "it needs each reward by its name, which these episodes do not have",
    "greedy_rewards": "it needs a greedy episode of each task, and these tasks do not all have one",
    "trees": "it compares branches of trees, and a study's episodes are each sampled from the start",
    "nodes": "it compares branches of trees, and a study's episodes are each sampled from the start",
    "surprisals": "it compares branches of trees, and a study's episodes are each sampled from the start",
    "hindsight": "it needs the policy to read each episode again, which must be one sequence of tokens for that",
    "answer_scores": "it asks for the right answer of each task, which this world does not name",
    "start_answer_scores": "it asks for the right answer of each task, which this world does not name",
    "score_norms": "it needs the policy's scores of each token, which these episodes do not have",
}
"""Why a rule cannot be judged on a batch that lacks what it needs."""


def _reason_left_out(rule: Rule, batch: CreditBatch, turn_limit: int) -> str | None:
    """Why a rule cannot be judged on this batch; None if it can."""
    lacking = [need for need in estimator_of(rule.estimator).needs if getattr(batch, need) is None]
    if lacking:
        return _LACKING[lacking[-1]]
    if rule.estimator == "sweet-rl":
        return "its critic learns from pairs of episodes, and a study's from their returns"
    if rule.options.get("teacher") is not None:
        return "it learns from a teacher, which a study does not ask"
    if rule.options.get("rule") == "paper" and (most := max(turn_limit, *batch.turns)) > 2:
        return f"it is defined on at most two turns; this world allows {most}"
    return None


FEWEST_REPLAYS = 2
"""Fewest continuations per state. From a single one the uncertainty of the state's value cannot be estimated."""

Rewards = Mapping[str, RewardSection]


def study_replays(
    trajectories: TrajectoryArrays,
    continuations: Sequence[TrajectoryArrays],
    vectors: NDArray[np.float32],
    rewards: Rewards,
    *,
    values: Scores | None,
    rescored: Mapping[str, Ragged],
    greedy: TrajectoryArrays | None,
    turn_limit: int,
    seed: int,
    further: Sequence[Rule],
) -> tuple[Study, int]:
    """Compare every estimator with the true advantages: the study, and how many tasks are left out of it.

    `continuations`, in any number of parts, are grouped by the number of the state that they go on from, `vectors`
    [turns, dimensions] are those of all turns. `values` are a critic's of the episodes, `rescored` by name what else
    rules need of the policy, `greedy` one greedy episode of each task. Groups with a state that could not be replayed
    twice are left out.

    Raises:
        WorldLost: no group is left.
    """
    returns: dict[int, list[float]] = {}
    for part in continuations:
        for state, total in zip(part.group.tolist(), weighted_returns(part, rewards), strict=True):
            returns.setdefault(state, []).append(total)
    group = trajectories.group.tolist()
    # The numbers of each trajectory's turns among all turns: of its states, and of its score vectors.
    rows = trajectories.turn_rows(np.arange(len(trajectories.trained))).tolist()
    replay_returns = {index: [returns.get(row, []) for row in turns] for index, turns in enumerate(rows) if turns}
    dropped = {
        group[index]
        for index, states in replay_returns.items()
        if any(len(replays) < FEWEST_REPLAYS for replays in states)
    }
    indices = [index for index in replay_returns if group[index] not in dropped]
    if not indices:
        raise WorldLost(
            "the study must be able to replay at least one group's states; the world lost all of them", "TW-world-lost"
        )
    complete = trajectories.select(indices)
    baselines = {} if greedy is None else rewards_of_groups(greedy, rewards)
    played_greedily = baselines.keys() >= {*complete.group.tolist()}
    batch = CreditBatch.of(
        complete,
        rewards,
        values=None if values is None else values.per_token.select(indices),
        bootstrap=None if values is None else values.at_end[indices],
        greedy_rewards=Ragged.of([baselines[task] for task in complete.group.tolist()]) if played_greedily else None,
        rescored={name: scores.select(indices) for name, scores in rescored.items()},
    )
    study = examine(
        batch,
        truth_of(complete, [replay_returns[index] for index in indices], rewards),
        vectors[[row for index in indices for row in rows[index]]],
        Decisions.of(complete),
        turn_limit=turn_limit,
        seed=seed,
        further=further,
    )
    return study, len(dropped)


def truth_of(trajectories: TrajectoryArrays, continued: Sequence[Sequence[Sequence[float]]], rewards: Rewards) -> Truth:
    """The true advantages. `continued` holds the returns of continuations, by trajectory and state."""
    return replayed_truth(weighted_returns(trajectories, rewards), continued)
