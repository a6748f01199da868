"""Bias of advantage estimators on small problems in which the policy chooses when to stop and the gradient is known.

A problem is a table of a few states with two choices each, and a policy that takes the first choice with probability
sigmoid(logit of the state). Everything can be enumerated:

    truth(s)     = sum over trajectories of P * return * sum over turns of d log pi / d logit_s
    estimate(s)  = 1 / G sum over a group's trajectories and their turns of A_(i,t) * d log pi / d logit_s

The advantages A come from `turnwise.credit.estimate`, so the rules examined are exactly those used in training. Only a
few different trajectories exist, and no rule depends on their order in a group. So each kind of group is credited once,
and then any number of groups can be drawn. The same enumeration gives each rule's exact expectation.

Turns are summed and trajectories averaged, which gives the policy gradient itself; a loss that averages over sampled
turns or tokens has a bias of its own, whatever the rule.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.credit import CreditBatch, estimate
from turnwise.data.arrays import Ragged
from turnwise.seeding import generator

Vector = NDArray[np.float64]
Composition = tuple[int, ...]
"""A kind of group: the indices of its trajectories in `paths(problem)`, ascending."""


@dataclass(frozen=True)
class Choice:
    """The consequences of one choice."""

    reward: float = 0.0
    """The turn reward."""
    outcome: float = 0.0
    """The outcome reward, if the trajectory ends here."""
    then: str | None = None
    """The next state; None if the trajectory ends here."""


@dataclass(frozen=True)
class DecisionState:
    """A state with two choices; the policy takes the first with probability sigmoid(logit)."""

    logit: float
    first: Choice
    second: Choice


@dataclass(frozen=True)
class DecisionProblem:
    """A table of states. Every trajectory begins in the first state; each state can be reached in only one way."""

    title: str
    states: Mapping[str, DecisionState]


@dataclass(frozen=True)
class Rule:
    """An advantage estimator with its options, as `turnwise.credit.estimate` takes them."""

    title: str
    estimator: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Path:
    """One possible trajectory of a problem, with its probability under the policy."""

    probability: float = 1.0
    states: tuple[str, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    outcome: float = 0.0
    slopes: tuple[float, ...] = ()
    """For each turn, d log pi / d logit of the turn's state."""

    def onward(self, name: str, choice: Choice, probability: float, slope: float) -> Path:
        """The path extended by one turn in state `name`."""
        return Path(
            self.probability * probability,
            (*self.states, name),
            (*self.turn_rewards, choice.reward),
            choice.outcome,
            (*self.slopes, slope),
        )


ROUNDING = 1e-9
"""How far a share of the true gradient may be from a number and still be that number."""


@dataclass(frozen=True)
class ExactBias:
    """The expectation of a rule's gradient estimate, and the true gradient. Vectors have one entry per state."""

    rule: Rule
    truth: Vector
    """The true gradient."""
    expected: Vector
    """The exact expectation of the estimate, over all groups."""

    @property
    def shares(self) -> Vector:
        """The expected estimate divided by the true gradient, per state."""
        return self.expected / self.truth

    @property
    def finding(self) -> str:
        """The verdict: `unbiased`, `rescaled`, `no signal`, `distorted` or `wrong sign`.

        If `shares` is equal in all states, only the length of a step changes; otherwise its direction does too.
        """
        if np.allclose(self.shares, 1.0, rtol=0.0, atol=ROUNDING):
            return "unbiased"
        if np.allclose(self.shares, 0.0, rtol=0.0, atol=ROUNDING):
            return "no signal"
        if (self.shares < -ROUNDING).any():
            return "wrong sign"
        return "rescaled" if np.allclose(self.shares, self.shares[0], rtol=0.0, atol=ROUNDING) else "distorted"


@dataclass(frozen=True)
class RuleBias(ExactBias):
    """The same, and what was estimated from groups that were drawn."""

    mean: Vector
    """The mean estimate over the groups that were drawn."""
    standard_error: Vector
    """The standard error of `mean`."""
    deviation: Vector
    """The standard deviation of the estimate from one group."""


def paths(problem: DecisionProblem) -> list[Path]:
    """All trajectories of a problem, with their probabilities."""
    return _onward(problem, next(iter(problem.states)), Path())


def _onward(problem: DecisionProblem, name: str | None, path: Path) -> list[Path]:
    """All trajectories that begin with `path` and continue in state `name` (None: the path is complete)."""
    if name is None:
        return [path]
    state = problem.states[name]
    first = 1.0 / (1.0 + math.exp(-state.logit))
    return [
        *_onward(problem, state.first.then, path.onward(name, state.first, first, 1.0 - first)),
        *_onward(problem, state.second.then, path.onward(name, state.second, 1.0 - first, -first)),
    ]


def _greedy(problem: DecisionProblem) -> Path:
    """The trajectory of the likelier choice in each state."""
    path, name = Path(), next(iter(problem.states), None)
    while name is not None:
        state = problem.states[name]
        choice = state.first if state.logit > 0 else state.second
        path, name = path.onward(name, choice, 1.0, 0.0), choice.then
    return path


def _beliefs(problem: DecisionProblem) -> dict[str, float]:
    """What takes the place of the probability of the right answer: that of the likeliest path from each state."""
    return {
        state: max(path.probability for path in through) / math.fsum(path.probability for path in through)
        for state in problem.states
        if (through := [path for path in paths(problem) if state in path.states])
    }


def state_values(problem: DecisionProblem) -> dict[str, float]:
    """V: the expected return from each state on, which a critic that knows everything would give."""
    values: dict[str, float] = {}
    for name, state in reversed(list(problem.states.items())):  # a state leads to later ones alone
        first = 1.0 / (1.0 + math.exp(-state.logit))
        values[name] = first * choice_value(state.first, values) + (1.0 - first) * choice_value(state.second, values)
    return values


def choice_value(choice: Choice, values: Mapping[str, float]) -> float:
    """Q: the expected return from a choice on, given the `state_values`."""
    return choice.reward + (choice.outcome if choice.then is None else values[choice.then])


def _steps(problem: DecisionProblem, path: Path) -> list[tuple[str, Choice]]:
    """The states of a trajectory, each with what was chosen there."""
    choices = [
        problem.states[name].first if slope > 0 else problem.states[name].second
        for name, slope in zip(path.states, path.slopes, strict=True)
    ]
    return list(zip(path.states, choices, strict=True))


def _best_teacher(state: DecisionState, choice: Choice, values: Mapping[str, float]) -> float:
    """What a choice gains in log-probability under the teacher pi exp(Q), over its sum."""
    first = 1.0 / (1.0 + math.exp(-state.logit))
    weights = (first, state.first), (1.0 - first, state.second)
    total = math.fsum(probability * math.exp(choice_value(each, values)) for probability, each in weights)
    return choice_value(choice, values) - math.log(total)


def true_gradient(problem: DecisionProblem) -> Vector:
    """The exact gradient of the expected return with respect to the logit of each state, [states]."""
    gradient = dict.fromkeys(problem.states, 0.0)
    for path in paths(problem):
        for state, slope in zip(path.states, path.slopes, strict=True):
            gradient[state] += path.probability * (math.fsum(path.turn_rewards) + path.outcome) * slope
    return np.array(list(gradient.values()))


def estimated_gradient(problem: DecisionProblem, rule: Rule, group: Sequence[Path]) -> Vector:
    """A rule's gradient estimate from one group, [states]: turns summed, trajectories averaged.

    Every reply counts as one token, but as two for `archer` and `sweet-rl`, which ask a critic before a reply and after
    it. The critic knows the true values, and the teacher of self-distillation is pi exp(Q), over its sum.
    """
    greedy, belief, values = _greedy(problem), _beliefs(problem), state_values(problem)
    steps = [_steps(problem, path) for path in group]
    tokens = 2 if rule.estimator in ("archer", "sweet-rl") else 1

    batch = CreditBatch(
        group=[0] * len(group),
        turn_rewards=Ragged.of(path.turn_rewards for path in group),
        outcome=[path.outcome for path in group],
        reply_lengths=Ragged.of(([tokens] * len(path.states) for path in group), np.int64),
        values=Ragged.of(
            [value for name, choice in row for value in (values[name], choice_value(choice, values))[:tokens]]
            for row in steps
        ),
        anchors=[path.states for path in group],
        named_rewards=Ragged.of([math.fsum(path.turn_rewards), path.outcome] for path in group),
        reward_weights=Ragged.of([[1.0, 1.0]] * len(group)),
        greedy_rewards=Ragged.of([[math.fsum(greedy.turn_rewards), greedy.outcome]] * len(group)),
        score_norms=Ragged.of(
            [2.0 * slope**2 for slope in path.slopes for _ in range(tokens)]
            for path in group  # of two logits
        ),
        trees=[0] * len(group),
        nodes=Ragged.of(
            ([100 * index + turn for turn in range(len(path.states))] for index, path in enumerate(group)), np.int64
        ),
        surprisals=Ragged.of([math.log(2.0)] * len(path.states) for path in group),  # no state branches
        hindsight=Ragged.of(
            [_best_teacher(problem.states[name], choice, values) for name, choice in row for _ in range(tokens)]
            for row in steps
        ),
        answer_scores=Ragged.of([math.log(belief[state]) for state in path.states] for path in group),
        start_answer_scores=Ragged.of([math.log(belief[state]) for state in path.states] for path in group),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # turns that only one trajectory reaches are part of what is examined
        advantages = estimate(rule.estimator, batch, **rule.options).tolist()
    gradient = dict.fromkeys(problem.states, 0.0)
    for path, row in zip(group, advantages, strict=True):
        for state, slope, advantage in zip(path.states, path.slopes, row, strict=True):
            gradient[state] += advantage * slope / len(group)
    return np.array(list(gradient.values()))


def bias_of(problem: DecisionProblem, rule: Rule, group_size: int) -> ExactBias:
    """A rule's bias on a problem, exactly: over all groups of so many trajectories, with their probabilities."""
    kinds = paths(problem)
    compositions = _compositions(kinds, group_size)
    probabilities = np.array([_probability(kinds, composition) for composition in compositions])
    return ExactBias(rule, true_gradient(problem), probabilities @ _estimates(problem, rule, kinds, compositions))


def examine(
    problem: DecisionProblem, rules: Sequence[Rule], *, group_size: int, groups: int, seed: int
) -> list[RuleBias]:
    """Each rule's bias on a problem: exact, and estimated over `groups` drawn groups, the same ones for every rule."""
    kinds = paths(problem)
    compositions = _compositions(kinds, group_size)
    probabilities = np.array([_probability(kinds, composition) for composition in compositions])
    counts = _draw(kinds, compositions, groups, seed)
    verdicts = []
    for rule in rules:
        estimates = _estimates(problem, rule, kinds, compositions)
        mean = counts @ estimates / groups
        variance = counts @ (estimates - mean) ** 2 / (groups - 1)
        verdicts.append(
            RuleBias(
                rule=rule,
                truth=true_gradient(problem),
                expected=probabilities @ estimates,
                mean=mean,
                standard_error=np.sqrt(variance / groups),
                deviation=np.sqrt(variance),
            )
        )
    return verdicts


def _compositions(kinds: Sequence[Path], group_size: int) -> list[Composition]:
    return list(combinations_with_replacement(range(len(kinds)), group_size))


def _estimates(
    problem: DecisionProblem, rule: Rule, kinds: Sequence[Path], compositions: Sequence[Composition]
) -> Vector:
    """A rule's gradient estimate from each kind of group, [compositions, states]."""
    return np.array([estimated_gradient(problem, rule, [kinds[kind] for kind in each]) for each in compositions])


def _probability(kinds: Sequence[Path], composition: Composition) -> float:
    """The probability of drawing a group of this kind (multinomial)."""
    counts = Counter(composition)
    orders = math.factorial(len(composition)) // math.prod(math.factorial(count) for count in counts.values())
    return orders * math.prod(kinds[kind].probability ** count for kind, count in counts.items())


def _draw(kinds: Sequence[Path], compositions: Sequence[Composition], groups: int, seed: int) -> NDArray[np.int64]:
    """How often each kind of group occurs among `groups` groups of independently drawn trajectories."""
    size = len(compositions[0])
    draws = generator(seed, "credit-bias").choice(
        len(kinds), size=(groups, size), p=[kind.probability for kind in kinds]
    )
    digits = len(kinds) ** np.arange(size)[::-1]
    codes = np.array(compositions) @ digits  # ascending, as the compositions are
    places = np.searchsorted(codes, np.sort(draws, axis=1) @ digits)
    return np.bincount(places, minlength=len(compositions))


PROBLEMS: Sequence[DecisionProblem] = (
    DecisionProblem(
        "Two turns: look, then answer",
        {
            "look or stop": DecisionState(0.3, first=Choice(reward=0.3, then="answer"), second=Choice()),
            "answer": DecisionState(-0.4, first=Choice(reward=1.4), second=Choice(reward=1.0)),
        },
    ),
    DecisionProblem(
        "Three turns: each look costs something",
        {
            "look or stop": DecisionState(
                0.2, first=Choice(reward=-0.1, then="look again"), second=Choice(outcome=0.2)
            ),
            "look again": DecisionState(
                0.0, first=Choice(reward=-0.1, then="answer"), second=Choice(reward=0.2, outcome=0.3)
            ),
            "answer": DecisionState(-0.3, first=Choice(reward=1.0, outcome=1.0), second=Choice(reward=0.4)),
        },
    ),
)
"""The first is the problem of the project's field notes. In the second, going on costs at once and pays later."""

BASELINES: Sequence[Rule] = (
    Rule("return-to-go", "mt-grpo", {"rule": "return-to-go"}),
    Rule("rloo", "rloo", {"rewards": "merged"}),
    Rule("reinforce++", "reinforce++", {"rewards": "turn", "whiten": False}),
    Rule("reinforce++-baseline", "reinforce++-baseline", {"rewards": "merged", "whiten": False}),
    Rule("padded, to go", "mt-grpo", {"rule": "padded", "deviation": "none"}),
    Rule("grpo", "grpo", {"rewards": "merged", "deviation": "none"}),
    Rule("return-to-go, itself in the mean", "mt-grpo", {"rule": "return-to-go", "baseline": "group"}),
    Rule("gigpo, gamma 1", "gigpo", {"gamma": 1.0, "deviation": "none"}),
    Rule("per-index, to go", "mt-grpo", {"rule": "per-index", "deviation": "none"}),
    Rule("per-index, own turn only", "mt-grpo", {"rule": "per-index", "deviation": "none", "to_go": False}),
    Rule("padded, own turn only", "mt-grpo", {"rule": "padded", "deviation": "none", "to_go": False}),
    Rule("turn-reinforce, compared with nothing", "turn-reinforce", {"over": "none"}),
    Rule("turn-reinforce", "turn-reinforce", {"deviation": "none"}),
    Rule("opo", "opo", {"rewards": "merged"}),
    Rule("gpg", "gpg", {"rewards": "merged"}),
    Rule("maxrl", "maxrl", {"rewards": "merged"}),
    Rule("grpo-passk", "grpo-passk", {"rewards": "merged", "deviation": "none"}),
    Rule("hgpo, gamma 1", "hgpo", {"gamma": 1.0, "deviation": "none"}),
    Rule("remax", "remax"),
    Rule("optimal token baseline", "optimal-token-baseline", {"rewards": "turn"}),
    Rule("gae, true values", "gae", {"whiten": False}),
    Rule("turn-gae, true values, lambda 0", "turn-gae", {"lam": 0.0, "whiten": False}),
    Rule("bi-level-gae, true values", "bi-level-gae", {"whiten": False}),
    Rule("length-adaptive-gae, true values", "length-adaptive-gae", {"whiten": False}),
    Rule("cross-level-gae, true values", "cross-level-gae", {"whiten": False}),
    Rule("archer, true values", "archer", {"whiten": False}),
    Rule("sweet-rl, true values", "sweet-rl", {"whiten": False}),
    Rule("information-gain", "information-gain", {"rewards": "merged", "deviation": "none"}),
    Rule("trace", "trace", {"rewards": "merged", "deviation": "none"}),
    Rule("self-distillation, teacher pi exp(Q)", "self-distillation"),
)
"""All ways to form a baseline, without division by a deviation, so on the scale of the rewards but for `maxrl`."""

DEVIATIONS: Sequence[Rule] = (
    Rule("return-to-go", "mt-grpo", {"rule": "return-to-go", "deviation": "unbiased"}),
    Rule("padded, to go", "mt-grpo", {"rule": "padded", "deviation": "unbiased"}),
    Rule("grpo", "grpo", {"rewards": "merged", "deviation": "unbiased"}),
    Rule("gigpo, gamma 1", "gigpo", {"gamma": 1.0, "deviation": "unbiased"}),
    Rule("per-index, to go", "mt-grpo", {"rule": "per-index", "deviation": "unbiased"}),
    Rule("gdpo", "gdpo"),
    Rule("grpo-passk", "grpo-passk", {"rewards": "merged"}),
    Rule("hgpo, gamma 1", "hgpo", {"gamma": 1.0}),
)
"""Rules of `BASELINES` with advantages divided by a deviation of the group, and `gdpo`, which always is."""
