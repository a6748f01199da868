"""The interface of credit: names, options, what an estimator needs, and what comes back."""

from dataclasses import replace

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
            "must be one of archer, at2po, bi-level-gae, .*, turn-gae, .*or 'module:name'; found 'grppo'",
        ),
        ("grpo", {"epsilom": 1.0}, "options of 'grpo' are .*; found 'epsilom'"),
        ("grpo", {"rewards": "both"}, "rewards must be one of outcome, merged"),
        ("mt-grpo", {"rule": "papers"}, "rule must be one of paper, per-index, padded, return-to-go"),
        ("grpo", {"deviation": "biased"}, "deviation must be one of"),
        ("grpo", {"epsilon": -1.0}, "epsilon must be at least 0"),
        ("grpo", {"epsilon": "1e-4"}, "epsilon must be a number; found '1e-4'"),
        ("gigpo", {"omega": None}, "omega must be a number; found None"),
        ("gigpo", {"similarity": 0.0}, "similarity must be above 0"),
        ("hgpo", {"history": -1}, "history must be at least 0"),
        ("hgpo", {"history": 1.5}, "history must be a whole number"),
        ("grpo", {"deviation": "of the batch"}, "deviation must be one of unbiased, population, none, batch"),
        ("gpg", {"counted": "all"}, "counted must be one of spread, rewarded"),
        ("maxrl", {"epsilon": 1e-6}, "options of 'maxrl' are rewards; found 'epsilon'"),
        ("grpo-passk", {"deviation": "batch"}, "deviation must be one of unbiased, population, none"),
        ("gdpo", {"rewards": "merged"}, "options of 'gdpo' are deviation, epsilon; found 'rewards'"),
        ("information-gain", {"pooled": "together"}, "pooled must be one of joint, apart"),
        ("turn-reinforce", {"over": "trajectory"}, "over must be one of group, batch, none"),
        ("length-adaptive-gae", {"alpha": 0.0}, "alpha must be above 0"),
        ("length-adaptive-gae", {"lam": 0.9}, "found 'lam'"),
        ("cross-level-gae", {"weight": 1.5}, "weight must be at most 1"),
        ("gae", {"gamma": 1.5}, "gamma must be at most 1; found 1.5"),
        ("gae", {"lam": float("nan")}, "lam must be a finite number; found nan"),
        ("gae", {"trace": 0.9}, "found 'trace': it is now called 'lam'"),
        ("gae", {"whiten": 0}, "whiten must be true or false; found 0"),
        ("gae", {"rewards": "both"}, "rewards must be one of turn, merged, outcome"),
        ("bi-level-gae", {"gamma_turn": -0.1}, "gamma_turn must be at least 0; found -0.1"),
        ("reinforce++", {"gamma": True}, "gamma must be a number; found True"),
        ("rloo", {"deviation": "none"}, "options of 'rloo' are rewards; found 'deviation'"),
        ("mt-grpo", {"turn_coefficient": "1"}, "turn_coefficient must be a number"),
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
        ("reinforce++", "'reinforce[+][+]' needs reply_lengths, the tokens of each turn's reply; the batch has none"),
        ("reinforce++-baseline", "needs reply_lengths"),
        ("gae", "'gae' needs reply_lengths"),
        ("turn-gae", "needs reply_lengths"),
        ("bi-level-gae", "needs reply_lengths"),
        ("gigpo", "'gigpo' needs anchors, the world's state before each turn; the batch has none"),
        ("hgpo", "'hgpo' needs anchors"),
        ("opo", "'opo' needs reply_lengths"),
        ("optimal-token-baseline", "'optimal-token-baseline' needs reply_lengths"),
        ("remax", "'remax' needs greedy_rewards, what a greedy episode of the same task earns"),
        ("information-gain", "needs answer_scores, the policy's log-probability of the right answer before each turn"),
        ("tree-grpo", "'tree-grpo' needs trees, the tree that each trajectory is a branch of"),
        ("self-distillation", "'self-distillation' needs reply_lengths"),
        ("gdpo", "'gdpo' needs named_rewards, each named reward of a trajectory"),
    ],
)
def test_what_an_estimator_lacks_is_named(name: str, message: str) -> None:
    with pytest.raises(CreditError, match=message):
        estimate(name, SEARCHES)


def test_a_critic_that_is_lacking_is_named() -> None:
    for name in ("gae", "turn-gae", "bi-level-gae", "length-adaptive-gae", "cross-level-gae", "archer"):
        with pytest.raises(CreditError, match=f"'{name}' needs values, a critic's values per reply token"):
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
        "hindsight": [[0.1, -0.2, 0.3], [0.1, -0.2, 0.3, 0.4]],
        "answer_scores": [[-1.0, -0.5], [-1.0, -2.0, -0.1]],
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
    with pytest.raises(
        CreditError, match=r"with a critic are gae, turn-gae, bi-level-gae, length-ad.*; found 'grpo', which has none"
    ):
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
    batch = replace(batch, hindsight=[[0.1, -0.2, 0.3]], trees=[0], nodes=[[0, 1]])
    options = {"rule": "paper"} if name == "mt-grpo" else {}  # return-to-go keeps the raw return of one that is alone
    silent = not any(value for row in estimate(name, batch, **options) for value in row)
    assert silent == ESTIMATORS[name].grouped
