"""`check_rule`: whether a credit rule keeps the contract of `turnwise.credit`, and how biased it is.

A rule is a function from a `CreditBatch` to advantages, with what it declares in its `Estimator`. It must answer any
batch with one finite number for each turn or reply token, be a function of the batch alone, and know trajectories by
their group and not by their place. A rule that compares within groups must not see what is added to every trajectory of
a group, and gives nothing to a group whose trajectories are all alike. Its bias is measured on the problems of
docs/credit-bias.md, exactly, and is reported and not judged: many rules of papers are biased.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from turnwise.checking.credit_bias import PROBLEMS, DecisionProblem, Rule, bias_of
from turnwise.checking.report import Broken, CheckReport, NotApplicable, examine
from turnwise.credit import CreditBatch, Estimator, estimate, estimator_of, require_options, value_targets
from turnwise.credit.declaration import require_declaration
from turnwise.data.arrays import Ragged
from turnwise.errors import ConfigurationError
from turnwise.seeding import generator

GROUP_SIZE = 4
TOLERANCE = 1e-6
"""Relative to the largest advantage: sums of other orders differ in their last digits."""
SHIFT = 1000.0


@dataclass(frozen=True)
class CheckedRule:
    """A rule with its options."""

    name: str
    options: Mapping[str, Any]
    seed: int

    @property
    def estimator(self) -> Estimator:
        """What the rule declares of itself."""
        return estimator_of(self.name)

    def credited(self, batch: CreditBatch) -> Ragged:
        """The advantages of a batch; notes on trajectories without a baseline are not shown."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return estimate(self.name, batch, **self.options)

    def batch(self, *, groups: int = 3, longest: int = 4, equal: bool = False) -> CreditBatch:
        """A batch with all that a rule may ask for; `equal` gives all trajectories of it `longest` turns."""
        draw = generator(self.seed, "check-rule", "batch")
        count = groups * GROUP_SIZE
        turns = [longest] * count if equal else draw.integers(1, longest + 1, count).tolist()
        lengths = [draw.integers(1, 4, each).tolist() for each in turns]
        return CreditBatch(
            # Groups take turns, so that a rule which takes neighbours for a group is found out.
            group=[index % groups for index in range(count)],
            turn_rewards=Ragged.of(draw.normal(size=each).tolist() for each in turns),
            outcome=draw.normal(size=count).tolist(),
            reply_lengths=Ragged.of(lengths, np.int64),
            values=Ragged.of(draw.normal(size=sum(row)).tolist() for row in lengths),
            anchors=[[f"state {place}" for place in range(each)] for each in turns],
            truncated=[index % 5 == 0 for index in range(count)],
            bootstrap=draw.normal(size=count).tolist(),
            named_rewards=Ragged.of(draw.normal(size=2).tolist() for _ in range(count)),
            reward_weights=Ragged.of([[1.0, 0.5]] * count),
            greedy_rewards=Ragged.of([[0.1, 0.5]] * count),
            score_norms=Ragged.of(draw.uniform(0.0, 2.0, size=sum(row)).tolist() for row in lengths),
            trees=[index // groups // 2 for index in range(count)],
            nodes=Ragged.of(((100 * index + np.arange(each)).tolist() for index, each in enumerate(turns)), np.int64),
            surprisals=Ragged.of([0.5] * each for each in turns),
            hindsight=Ragged.of(draw.normal(size=sum(row)).tolist() for row in lengths),
            answer_scores=Ragged.of((-draw.uniform(0.0, 3.0, size=each)).tolist() for each in turns),
            start_answer_scores=Ragged.of((-draw.uniform(0.0, 3.0, size=each)).tolist() for each in turns),
        )


def check_rule(name: str, options: Mapping[str, Any] | None = None, *, seed: int = 0) -> CheckReport:
    """Run all checks on a credit rule: a name of `ESTIMATORS`, an entry point, or `module:name`.

    Errors of the rule become findings and are not raised. Raises CreditError where no rule has that name.
    """
    rule = CheckedRule(name, dict(options or {}), seed)
    estimator_of(name)
    checks: list[tuple[str, Callable[[CheckedRule], str]]] = [
        ("the rule declares itself", declares_itself),
        ("advantages have the batch's shape", advantages_have_the_shape),
        ("any rewards give finite numbers", numbers_are_finite),
        ("the same batch gives the same", credit_repeats),
        ("order does not matter", order_does_not_matter),
        ("groups do not matter to one another", groups_are_apart),
        ("a constant added to a group cancels", constants_cancel),
        ("a group that is all alike gets nothing", equal_groups_get_nothing),
        ("a critic has targets", critic_has_targets),
        *((f"bias: {problem.title}", partial(bias_is_known, problem)) for problem in PROBLEMS),
    ]
    return CheckReport(name, tuple(examine(title, partial(check, rule)) for title, check in checks), "credit rule")


def declares_itself(rule: CheckedRule) -> str:
    """Check that the options are the rule's, that what it needs is an input of rules, and its packages are here."""
    estimator = rule.estimator
    require_options(rule.name, rule.options)
    try:
        require_declaration(f"the credit rule {rule.name}", estimator)
    except ConfigurationError as error:
        raise Broken(str(error)) from error
    needs = f"needs {', '.join(estimator.needs)}" if estimator.needs else "needs nothing else"
    return f"one per {estimator.level}; {'compares within groups' if estimator.grouped else 'any group'}; {needs}"


def advantages_have_the_shape(rule: CheckedRule) -> str:
    """Check that there is one number per turn or token, for trajectories of any length and for what it needs alone."""
    longest = _longest(rule)
    for batch in (rule.batch(longest=longest), rule.batch(longest=1), rule.batch(groups=1, longest=longest)):
        expected = batch.trained_turns if rule.estimator.level == "turn" else batch.trained_tokens
        for input_batch in (batch, batch.with_only(rule.estimator.needs)):
            advantages = rule.credited(input_batch)
            if not np.array_equal(advantages.offsets, expected.offsets):
                raise Broken(
                    f"there must be one advantage per {rule.estimator.level}, {expected.lengths.tolist()}; "
                    f"found {advantages.lengths.tolist()}"
                )
    return f"trajectories of 1 to {longest} turns"


def numbers_are_finite(rule: CheckedRule) -> str:
    """Check rewards that are huge, tiny, all 0 and all alike, and a batch of one group."""
    batch = rule.batch(longest=_longest(rule))
    for scale in (1e6, 1e-6, 0.0):
        scaled = replace(
            batch,
            turn_rewards=Ragged(batch.turn_rewards.values * scale, batch.turn_rewards.offsets),
            outcome=[value * scale for value in batch.outcome],
        )
        if not np.isfinite(rule.credited(scaled).values).all():
            raise Broken(f"advantages must be finite numbers; rewards times {scale:g} give others")
    return "rewards of 0, of a millionth and of a million"


def credit_repeats(rule: CheckedRule) -> str:
    """Check that a batch gives the same advantages twice, and is not changed."""
    batch = rule.batch(longest=_longest(rule))
    before = deepcopy(batch)
    first, second = rule.credited(batch), rule.credited(batch)
    if not np.array_equal(first.values, second.values):
        raise Broken("advantages must be a function of the batch; asked twice, the rule gave others")
    if batch != before:
        raise Broken("a rule must not change the batch; it did")
    return "to the last bit"


def order_does_not_matter(rule: CheckedRule) -> str:
    """Check that a batch in another order gives each trajectory the same advantages."""
    batch = rule.batch(longest=_longest(rule))
    order = generator(rule.seed, "check-rule", "order").permutation(len(batch)).tolist()
    actual, advantages = rule.credited(batch.select(order)).tolist(), rule.credited(batch).tolist()
    _require_alike("in another order of trajectories", [advantages[place] for place in order], actual)
    return f"{len(batch)} trajectories"


def groups_are_apart(rule: CheckedRule) -> str:
    """Report whether a group's advantages change with the rewards of other groups, as those of whitening rules do."""
    batch = rule.batch(longest=_longest(rule))
    outcomes = zip(batch.group, batch.outcome, strict=True)
    other = replace(batch, outcome=[value + 7.0 * (group == 1) for group, value in outcomes])
    own = [index for index, group in enumerate(batch.group) if group != 1]
    one, two = rule.credited(batch).tolist(), rule.credited(other).tolist()
    same = all(_close(one[index], two[index]) for index in own)
    return "a group's advantages are its own" if same else "they depend on other groups' rewards, as in whitening"


def constants_cancel(rule: CheckedRule) -> str:
    """Check that a constant on every outcome of a group changes nothing, for a rule that compares within groups."""
    # Trajectories of one length: a turn that only some reach may be compared with nothing.
    batch = rule.batch(longest=_longest(rule), equal=True)
    shifted = replace(batch, outcome=[value + SHIFT for value in batch.outcome])
    one, two = rule.credited(batch).tolist(), rule.credited(shifted).tolist()
    same = all(_close(*pair) for pair in zip(one, two, strict=True))
    if not rule.estimator.grouped:
        return "it does" if same else "it does not, and the rule does not say that it compares within groups"
    if not rule.estimator.relative:
        return "it does" if same else "it does not, as the rule says of itself"
    if not same:
        raise Broken(
            f"a rule that compares within groups must not see a constant; {SHIFT:g} on every outcome changes the first "
            f"advantages from {one[0][:3]} to {two[0][:3]}"
        )
    return f"{SHIFT:g} on every outcome"


def equal_groups_get_nothing(rule: CheckedRule) -> str:
    """Check that trajectories of a group that all earn the same get exactly 0, if the rule compares within groups."""
    if not rule.estimator.grouped:
        raise NotApplicable("it does not compare within groups")
    longest = _longest(rule)
    batch = rule.batch(longest=longest, equal=True)
    alike = replace(
        batch,
        turn_rewards=Ragged(np.full(len(batch.turn_rewards.values), 0.1), batch.turn_rewards.offsets),
        outcome=[0.7] * len(batch),
        named_rewards=Ragged.of([[0.1 * longest, 0.7]] * len(batch)),
    )
    advantages = rule.credited(alike).values
    if np.abs(advantages).max() > 0:
        raise Broken(f"advantages of a group that is all alike must be exactly 0; found {np.abs(advantages).max():g}")
    return "exactly 0"


def critic_has_targets(rule: CheckedRule) -> str:
    """Check that a rule with a critic has finite targets for it, one per reply token."""
    if "values" not in rule.estimator.needs:
        raise NotApplicable("it has no critic")
    batch = rule.batch(longest=_longest(rule))
    targets = value_targets(rule.name, batch, **rule.options)
    if not np.array_equal(targets.offsets, batch.trained_tokens.offsets) or not np.isfinite(targets.values).all():
        raise Broken("a critic must have one finite target per reply token; found others")
    return f"{len(targets.values)} targets"


def bias_is_known(problem: DecisionProblem, rule: CheckedRule) -> str:
    """Report the share of the true gradient that the rule keeps at each choice, exactly: see docs/credit-bias.md."""
    if "values" in rule.estimator.needs:
        raise NotApplicable("what a critic adds depends on what it has learned")
    if len(problem.states) > _longest(rule):
        raise NotApplicable(f"the rule is defined on at most {_longest(rule)} turns")
    bias = bias_of(problem, Rule(rule.name, rule.name, rule.options), GROUP_SIZE)
    shares = " / ".join(f"{share:.0%}" for share in bias.shares)
    return f"{bias.finding}: keeps {shares} of the true gradient in groups of {GROUP_SIZE}"


def _longest(rule: CheckedRule) -> int:
    restriction = rule.estimator.restriction(rule.options)
    return 4 if restriction is None or restriction.most_turns is None else restriction.most_turns


def _close(one: list[float], other: list[float]) -> bool:
    largest = max([1.0, *map(abs, one), *map(abs, other)])
    return all(math.isclose(*pair, rel_tol=0.0, abs_tol=TOLERANCE * largest) for pair in zip(one, other, strict=True))


def _require_alike(how: str, expected: list[list[float]], actual: list[list[float]]) -> None:
    for one, other in zip(expected, actual, strict=True):
        if not _close(one, other):
            raise Broken(f"a trajectory's advantages must be the same {how}; {one} became {other}")
