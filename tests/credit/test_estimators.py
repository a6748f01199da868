"""The interface of credit: names, options, what an estimator needs, and what comes back."""

import inspect
from dataclasses import replace
from typing import Any

import pytest
from credit_samples import SEARCHES, WITH_CRITIC

from turnwise.credit import ESTIMATORS, CreditBatch, estimate, require_options, value_targets
from turnwise.errors import CreditError

GROUP_OF_ONE = "ignore:a trajectory that has no other"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "grppo",
            {},
            "at2po.*bi-level-gae.*turn-gae.*'grppo'.*TW-unknown-name",
        ),
        ("grpo", {"epsilom": 1.0}, "options.*'grpo'.*'epsilom'.*TW-unknown-option"),
        ("grpo", {"rewards": "both"}, "rewards.*TW-unknown-choice"),
        ("mt-grpo", {"rule": "papers"}, "rule.*per-index.*return-to-go.*TW-unknown-choice"),
        ("grpo", {"deviation": "biased"}, "deviation.*TW-unknown-choice"),
        ("grpo", {"epsilon": -1.0}, "epsilon.*TW-option-range"),
        ("grpo", {"epsilon": "1e-4"}, "epsilon.*'1e-4'.*TW-option-type"),
        ("gigpo", {"omega": None}, "omega.*None.*TW-option-type"),
        ("gigpo", {"similarity": 0.0}, "similarity.*TW-option-range"),
        ("hgpo", {"history": -1}, "history.*TW-option-range"),
        ("hgpo", {"history": 1.5}, "history.*TW-option-type"),
        ("grpo", {"deviation": "of the batch"}, "deviation.*TW-unknown-choice"),
        ("gpg", {"counted": "all"}, "counted.*TW-unknown-choice"),
        ("maxrl", {"epsilon": 1e-6}, "options.*'maxrl'.*'epsilon'.*TW-unknown-option"),
        ("grpo-passk", {"deviation": "batch"}, "deviation.*TW-unknown-choice"),
        ("gdpo", {"rewards": "merged"}, "options.*'gdpo'.*'rewards'.*TW-unknown-option"),
        ("information-gain", {"pooled": "together"}, "pooled.*TW-unknown-choice"),
        ("turn-reinforce", {"over": "trajectory"}, "over.*TW-unknown-choice"),
        ("length-adaptive-gae", {"alpha": 0.0}, "alpha.*TW-option-range"),
        ("length-adaptive-gae", {"lam": 0.9}, "'lam'.*TW-unknown-option"),
        ("cross-level-gae", {"weight": 1.5}, "weight.*TW-option-range"),
        ("gae", {"gamma": 1.5}, r"gamma.*1\.5.*TW-option-range"),
        ("gae", {"lam": float("nan")}, "lam.*TW-option-range"),
        ("gae", {"trace": 0.9}, "'trace'.*'lam'.*TW-unknown-option"),
        ("gae", {"whiten": 0}, r"whiten.*\b0\b.*TW-option-type"),
        ("gae", {"rewards": "both"}, "rewards.*TW-unknown-choice"),
        ("bi-level-gae", {"gamma_turn": -0.1}, r"gamma_turn.*-0\.1.*TW-option-range"),
        ("reinforce++", {"gamma": True}, "gamma.*True.*TW-option-type"),
        ("rloo", {"deviation": "none"}, "options.*'rloo'.*'deviation'.*TW-unknown-option"),
        ("mt-grpo", {"turn_coefficient": "1"}, "turn_coefficient.*TW-option-type"),
    ],
)
def test_an_unknown_name_or_option_is_refused_before_there_is_a_batch(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(CreditError, match=message):
        require_options(name, options)
    with pytest.raises(CreditError, match=message):
        estimate(name, SEARCHES, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reinforce++", "TW-rule-lacks-input"),
        ("reinforce++-baseline", "TW-rule-lacks-input"),
        ("gae", "'gae'.*TW-rule-lacks-input"),
        ("turn-gae", "TW-rule-lacks-input"),
        ("bi-level-gae", "TW-rule-lacks-input"),
        ("gigpo", "'gigpo'.*TW-rule-lacks-input"),
        ("hgpo", "'hgpo'.*TW-rule-lacks-input"),
        ("opo", "'opo'.*TW-rule-lacks-input"),
        ("optimal-token-baseline", "'optimal-token-baseline'.*TW-rule-lacks-input"),
        ("remax", "'remax'.*greedy_rewards.*TW-rule-lacks-input"),
        ("information-gain", "answer_scores.*policy's log-probability.*TW-rule-lacks-input"),
        ("trace", "start_answer_scores.*warm start's log-probability.*TW-rule-lacks-input"),
        ("tree-grpo", "'tree-grpo'.*TW-rule-lacks-input"),
        ("self-distillation", "'self-distillation'.*TW-rule-lacks-input"),
        ("gdpo", "'gdpo'.*named_rewards.*TW-rule-lacks-input"),
    ],
)
def test_what_an_estimator_lacks_is_named(name: str, message: str) -> None:
    with pytest.raises(CreditError, match=message):
        estimate(name, SEARCHES)


def test_a_critic_that_is_lacking_is_named() -> None:
    for name in ("gae", "turn-gae", "bi-level-gae", "length-adaptive-gae", "cross-level-gae", "archer", "sweet-rl"):
        with pytest.raises(CreditError, match=rf"{name}.*TW-rule-lacks-input"):
            estimate(name, replace(WITH_CRITIC, values=None))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_what_an_estimator_says_it_needs_is_all_that_it_needs(name: str) -> None:
    whole = {
        "reply_lengths": [[2, 1], [1, 2, 1]],
        "values": [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]],
        "anchors": [["a", "b"], ["a", "c", "b"]],
        "named_rewards": [[1.0], [0.0]],
        "reward_weights": [[1.0], [1.0]],
        "greedy_rewards": [[0.5, 0.0], [0.5, 0.0]],
        "score_norms": [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]],
        "trees": [0, 1],
        "nodes": [[0, 1], [2, 3, 4]],
        "surprisals": [[0.5, 1.0], [0.5, 0.2, 0.1]],
        "hindsight": [[0.1, -0.2, 0.3], [0.1, -0.2, 0.3, 0.4]],
        "answer_scores": [[-1.0, -0.5], [-1.0, -2.0, -0.1]],
        "start_answer_scores": [[-1.0, -0.5], [-1.0, -2.0, -0.1]],
    }
    batch = CreditBatch(
        group=[0, 0],
        turn_rewards=[[0.0, 1.0], [0.5, 0.0, 0.0]],
        outcome=[1.0, 0.0],
        **{field: whole[field] for field in ESTIMATORS[name].needs},
    )
    lengths = [2, 3] if ESTIMATORS[name].level == "turn" else [3, 4]
    assert [len(row) for row in estimate(name, batch)] == lengths


def test_an_estimator_without_a_critic_has_no_targets() -> None:
    with pytest.raises(CreditError, match=r"turn-gae.*bi-level-gae.*length-ad.*'grpo'.*TW-no-critic"):
        value_targets("grpo", SEARCHES)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_an_empty_batch_has_no_advantages(name: str) -> None:
    needed = {"reply_lengths", "values", "anchors", *ESTIMATORS[name].needs}
    batch = CreditBatch(group=[], turn_rewards=[], outcome=[], **{field: [] for field in needed})
    assert estimate(name, batch).tolist() == []


@pytest.mark.filterwarnings(GROUP_OF_ONE)
@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_trajectory_that_is_alone_in_its_group_has_no_signal_where_groups_are_compared(name: str) -> None:
    batch = replace(WITH_CRITIC, turn_rewards=[[0.5, 0.0]], anchors=[["a", "b"]])
    batch = replace(batch, named_rewards=[[0.5, 1.0]], reward_weights=[[1.0, 1.0]])
    batch = replace(batch, score_norms=[[0.5, 0.2, 0.1]], greedy_rewards=[[0.1, 0.5]], answer_scores=[[-1.0, -0.5]])
    batch = replace(batch, start_answer_scores=[[-1.0, -0.5]])
    batch = replace(batch, hindsight=[[0.1, -0.2, 0.3]], trees=[0], nodes=[[0, 1]], surprisals=[[0.5, 1.0]])
    options = {"rule": "paper"} if name == "mt-grpo" else {}  # return-to-go keeps the raw return of one that is alone
    silent = not any(value for row in estimate(name, batch, **options) for value in row)
    assert silent == ESTIMATORS[name].grouped


OF_GAE: dict[str, Any] = {"gamma": 1.0, "rewards": "turn", "whiten": True, "bootstrap": True, "epsilon": 1e-8}
DEFAULTS: dict[str, dict[str, Any]] = {
    "grpo": {"rewards": "outcome", "deviation": "unbiased", "epsilon": 1e-4},
    "mt-grpo": {
        "rule": "return-to-go", "turn_coefficient": 1.0, "outcome_coefficient": 1.0, "deviation": None, "epsilon": 1e-4,
        "to_go": None, "baseline": None,
    },
    "rloo": {"rewards": "outcome"},
    "reinforce++": {"gamma": 1.0, "rewards": "turn", "whiten": True, "epsilon": 1e-8},
    "reinforce++-baseline": {"gamma": 1.0, "rewards": "outcome", "whiten": True, "epsilon": 1e-8},
    "gae": {**OF_GAE, "lam": 1.0},
    "turn-gae": {**OF_GAE, "lam": 1.0},
    "bi-level-gae": {**OF_GAE, "lam": 1.0, "gamma_turn": 0.95},
    "length-adaptive-gae": {**OF_GAE, "alpha": 0.05},
    "cross-level-gae": {**OF_GAE, "lam": 1.0, "gamma_turn": 1.0, "lam_turn": 1.0, "weight": 0.5},
    "archer": {**OF_GAE, "lam": 0.0},
    "sweet-rl": {"beta": 1.0, "rewards": "merged", "whiten": True, "epsilon": 1e-8},
    "gigpo": {
        "rewards": "merged", "omega": 1.0, "gamma": 0.95, "deviation": "unbiased", "epsilon": 1e-6, "similarity": None,
    },
    "hgpo": {
        "rewards": "merged", "history": 2, "alpha": 1.0, "gamma": 0.95, "episode": False, "deviation": "population",
        "epsilon": 1e-6,
    },
    "opo": {"rewards": "outcome"},
    "gpg": {"rewards": "outcome", "counted": "spread"},
    "maxrl": {"rewards": "outcome"},
    "grpo-passk": {"rewards": "outcome", "deviation": "unbiased", "epsilon": 1e-6},
    "gdpo": {"deviation": "unbiased", "epsilon": 1e-4},
    "turn-reinforce": {"gamma": 1.0, "rewards": "turn", "over": "group", "deviation": None, "epsilon": 1e-6},
    "remax": {"rewards": "turn"},
    "information-gain": {
        "gain": "probability", "coefficient": 1.0, "rewards": "outcome", "pooled": "joint", "gamma": 1.0,
        "deviation": "unbiased", "epsilon": 1e-6,
    },
    "trace": {
        "horizon": 3, "gamma": 0.8, "terminal": 2.0, "coefficient": 0.2, "offset": 0.1, "rewards": "outcome",
        "deviation": "population", "epsilon": 1e-6,
    },
    "tree-grpo": {"rewards": "outcome", "within": 1.0, "across": 1.0, "deviation": "unbiased", "epsilon": 1e-6},
    "at2po": {
        "rewards": "outcome", "over": "children", "against": "tree", "deviation": "population", "epsilon": 1e-6,
    },
    "self-distillation": {
        "teacher": None, "coefficient": 1.0, "outcome_coefficient": 0.0, "gamma": 0.0, "rewards": "outcome",
        "deviation": "unbiased", "epsilon": 1e-4,
    },
    "optimal-token-baseline": {"rewards": "outcome", "gamma": 1.0, "steps": "token", "alone": "nothing"},
}  # fmt: skip


def test_a_rule_whose_options_are_not_set_is_that_of_its_source() -> None:
    own = {
        name: {
            each.name: each.default
            for each in inspect.signature(rule.function).parameters.values()
            if each.kind is each.KEYWORD_ONLY
        }
        for name, rule in ESTIMATORS.items()
    }
    assert own == DEFAULTS
