"""The study of a batch: every rule compared with the truth, and those that cannot be judged with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.checking.credit_bias import Rule
from turnwise.credit import ESTIMATORS, CreditBatch, estimate
from turnwise.credit.batch import RESCORED
from turnwise.credit_study.gradient_noise import group_gradients
from turnwise.credit_study.study import RULES, TRUTH, Study, advantages_of_turns, examine, same_rule
from turnwise.credit_study.truth import Decisions, Truth
from turnwise.data.arrays import Ragged
from turnwise.errors import CreditError

BATCH = CreditBatch(
    group=[0, 0, 0, 1, 1, 1],
    turn_rewards=[[0.5, 0.0], [0.0, 0.2], [0.1], [0.0, 0.3], [0.4], [0.1, 0.1]],
    outcome=[1.0, 0.0, 0.0, 1.0, 0.0, 0.5],
    reply_lengths=[[2, 1], [1, 3], [2], [1, 1], [4], [2, 2]],
    anchors=[["a", "b"], ["a", "b"], ["a"], ["c", "d"], ["c"], ["c", "d"]],
    named_rewards=[[1.0], [0.0], [0.0], [1.0], [0.0], [0.5]],
    reward_weights=[[1.0]] * 6,
)
TRUE = Truth(
    [[0.3, 0.2], [-0.2, -0.4], [-0.1], [0.1, 0.3], [-0.2], [0.1, -0.2]],
    [[0.01, 0.0], [0.01, 0.0], [0.01], [0.01, 0.0], [0.01], [0.01, 0.0]],
)
DECISIONS = Decisions(
    [[0, 1], [0, 2], [0], [10, 11], [10], [10, 12]],
    [[0, 1], [0, 2], [3], [10, 11], [10], [13, 12]],
)
VECTORS = np.random.default_rng(0).normal(size=(10, 6))


def study(batch: CreditBatch = BATCH, turn_limit: int = 2) -> Study:
    return examine(batch, TRUE, VECTORS, DECISIONS, turn_limit=turn_limit, seed=0)


def test_every_estimator_is_among_the_rules_and_every_rule_is_judged_or_has_a_reason() -> None:
    assert {rule.estimator for rule in RULES} == set(ESTIMATORS)
    for batch, limit in ((BATCH, 2), (BATCH, 5), (replace(BATCH, anchors=None), 2)):
        found = study(batch, limit)
        titles = [figures.title for figures in found.figures]
        assert titles[0] == TRUTH
        assert sorted([*titles[1:], *found.left_out]) == sorted(rule.title for rule in RULES)
    of_models = {"values", "greedy_rewards", "trees", *RESCORED}  # what a stored policy's episodes do not come with
    needing_models = {rule.title for rule in RULES if of_models & {*ESTIMATORS[rule.estimator].needs}}
    assert set(study().left_out) == needing_models
    assert set(study(turn_limit=3).left_out) == {*needing_models, "mt-grpo, paper"}
    assert set(study(replace(BATCH, anchors=None)).left_out) == {*needing_models, "gigpo", "hgpo"}


def test_a_rules_figures_are_those_of_the_estimator_that_trains() -> None:
    found = {figures.title: figures for figures in study().figures}
    advantages = estimate("rloo", BATCH, rewards="merged")
    mean = group_gradients(advantages, VECTORS, BATCH.group).mean(axis=0)
    true = group_gradients(TRUE.advantages, VECTORS, BATCH.group).mean(axis=0)
    figures = found["rloo, merged"]
    assert figures.gradient.norm == pytest.approx(np.linalg.norm(mean))
    assert figures.gradient.cosine is not None
    cosine = mean @ true / np.linalg.norm(mean) / np.linalg.norm(true)
    assert figures.gradient.cosine.value == pytest.approx(cosine)
    assert found[TRUTH].agreement is None and found[TRUTH].gradient.cosine is None


def test_the_errors_of_no_credit_and_of_measuring() -> None:
    found = study()
    assert found.error_of_no_credit == pytest.approx((0.3 + 0.2 + 0.2 + 0.4 + 0.1 + 0.1 + 0.3 + 0.2 + 0.1 + 0.2) / 10)
    # Six of ten advantages have an error of deviation 0.1, whose mean is sqrt(2 / pi) of it.
    assert found.error_of_measuring == pytest.approx(0.7978845608 * 0.06)
    assert (found.tasks, found.trajectories, found.turns, found.slope_turns) == (2, 6, 10, 2)


def test_a_rule_on_tokens_is_judged_by_the_mean_over_each_reply() -> None:
    merged = Rule("r", "reinforce++", {"rewards": "turn", "whiten": False})
    # The return of each turn: what it and the following ones earn.
    assert advantages_of_turns(merged, BATCH)[0] == pytest.approx([1.5, 1.0])
    # 0.5 comes with the second token and 1.0 with the third, and a token later is worth half: 0.5, 1.0, 1.0.
    discounted = replace(merged, options={**merged.options, "gamma": 0.5})
    assert advantages_of_turns(discounted, BATCH)[0] == pytest.approx([(0.5 + 1.0) / 2, 1.0])


def test_a_rule_of_every_study_is_known_by_its_options_defaults_counted() -> None:
    for rule in RULES:
        assert same_rule(rule.estimator, rule.options) == rule
    merged = same_rule("rloo", {"rewards": "merged"})
    assert merged is not None and merged.title == "rloo, merged"
    assert same_rule("gigpo", {"gamma": 0.5}) is None and same_rule("somebodys:rule", {}) is None


def test_a_further_rule_has_its_row_and_one_with_a_teacher_its_reason() -> None:
    mine = Rule("mine", "grpo", {"rewards": "outcome", "deviation": "none"})
    taught = Rule("taught", "self-distillation", {"teacher": "base-3m"})
    tokens = [[0.1] * sum(row) for row in BATCH.reply_lengths.tolist()] if BATCH.reply_lengths is not None else []
    found = examine(
        replace(BATCH, hindsight=Ragged.of(tokens)),
        TRUE,
        VECTORS,
        DECISIONS,
        turn_limit=2,
        seed=0,
        further=(mine, taught),
    )
    assert [figures.title for figures in found.figures][-1] == "mine"
    assert "teacher" in found.left_out["taught"] and "self-distillation" not in found.left_out


def test_one_task_is_no_comparison() -> None:
    alone = CreditBatch(group=[0, 0], turn_rewards=[[0.0], [0.0]], outcome=[0.0, 1.0], reply_lengths=[[1], [1]])
    with pytest.raises(CreditError, match=r"\b1\b.*TW-too-few-tasks"):
        examine(
            alone,
            Truth([[0.1], [0.2]], [[0.0], [0.0]]),
            VECTORS[:2],
            Decisions([[0], [0]], [[0], [1]]),
            turn_limit=2,
            seed=0,
        )


def test_a_study_is_stored_as_it_is() -> None:
    assert Study.from_json(study().to_json()) == study()
