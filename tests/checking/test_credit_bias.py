"""Which rules are biased, by the code that writes `docs/credit-bias.md`."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import credit_bias
from turnwise.checking.credit_bias import (
    BASELINES,
    DEVIATIONS,
    PROBLEMS,
    DecisionProblem,
    ExactBias,
    RuleBias,
    estimated_gradient,
    examine,
    paths,
    true_gradient,
)
from turnwise.credit import ESTIMATORS
from turnwise.seeding import generator

GROUP_SIZE, GROUPS = 4, 100_000
SHRINKAGE = (GROUP_SIZE - 1) / GROUP_SIZE
SURE = 5.0  # standard errors


@pytest.fixture(scope="module", params=PROBLEMS, ids=lambda problem: f"{len(problem.states)} turns")
def verdicts(request: pytest.FixtureRequest) -> dict[str, RuleBias]:
    found = examine(request.param, BASELINES, group_size=GROUP_SIZE, groups=GROUPS, seed=1)
    return {verdict.rule.title: verdict for verdict in found}


def errors_from(verdict: RuleBias, share: float) -> np.ndarray:
    """How far what was sampled is from a share of the true gradient, in standard errors, state by state."""
    return np.abs(verdict.mean - share * verdict.truth) / verdict.standard_error


def test_return_to_go_equals_the_true_gradient(verdicts: dict[str, RuleBias]) -> None:
    verdict = verdicts["return-to-go"]
    assert errors_from(verdict, 1.0).max() < SURE
    assert verdict.expected == pytest.approx(verdict.truth, abs=1e-12)


def test_padded_summed_to_go_only_rescales_the_gradient(verdicts: dict[str, RuleBias]) -> None:
    verdict = verdicts["padded, to go"]
    assert errors_from(verdict, SHRINKAGE).max() < SURE
    assert errors_from(verdict, 1.0).min() > SURE
    assert verdict.expected == pytest.approx(SHRINKAGE * verdict.truth, abs=1e-12)


def test_a_group_mean_that_includes_the_trajectory_itself_distorts_the_gradient(verdicts: dict[str, RuleBias]) -> None:
    verdict = verdicts["return-to-go, itself in the mean"]
    errors = errors_from(verdict, SHRINKAGE)
    assert errors[0] < SURE  # every trajectory has a first turn
    assert errors[1:].min() > SURE  # and the later a turn is, the fewer reach it
    assert list(verdict.shares) == sorted(verdict.shares, reverse=True)


@pytest.mark.parametrize("title", ["per-index, to go", "per-index, own turn only"])
def test_per_index_is_biased(verdicts: dict[str, RuleBias], title: str) -> None:
    verdict = verdicts[title]
    assert errors_from(verdict, 1.0).min() > SURE
    shares = verdict.mean / verdict.truth
    assert shares[0] < 0.2 and shares.max() > 0.5  # the direction is wrong too, not only the length


def test_per_index_has_the_wrong_sign_where_going_on_costs_at_once_and_pays_later() -> None:
    (verdict,) = examine(PROBLEMS[1], [BASELINES[8]], group_size=GROUP_SIZE, groups=GROUPS, seed=1)
    assert verdict.rule.title == "per-index, to go"
    assert verdict.truth[1] > 0
    assert verdict.mean[1] < -SURE * verdict.standard_error[1]


def test_larger_groups_do_not_help_per_index_but_they_help_a_mean_that_includes_itself() -> None:
    rules = [rule for rule in BASELINES if rule.title in ("per-index, to go", "return-to-go, itself in the mean")]
    included, index = examine(PROBLEMS[0], rules, group_size=24, groups=2, seed=1)
    assert index.shares[0] < 0.21
    assert included.shares.min() > 0.9


def test_what_was_sampled_agrees_with_the_enumeration_for_every_rule(verdicts: dict[str, RuleBias]) -> None:
    for verdict in verdicts.values():
        assert (np.abs(verdict.mean - verdict.expected) / verdict.standard_error).max() < SURE


def test_findings_say_what_the_numbers_say(verdicts: dict[str, RuleBias]) -> None:
    findings = {title: verdict.finding for title, verdict in verdicts.items()}
    assert {title for title, finding in findings.items() if finding == "unbiased"} == {
        "return-to-go",
        "rloo",
        "reinforce++",
        "remax",
        "turn-reinforce, compared with nothing",
        "gae, true values",
        "turn-gae, true values, lambda 0",
        "length-adaptive-gae, true values",
        "cross-level-gae, true values",
        "archer, true values",
        "sweet-rl, true values",
        "self-distillation, teacher pi exp(Q)",
    }
    rescaled = {title for title, finding in findings.items() if finding == "rescaled"}
    assert rescaled == {"padded, to go", "grpo", "gpg", "reinforce++-baseline"}


@pytest.mark.parametrize(
    ("kept", "finding"),
    [
        ([1.0, 1.0], "unbiased"),
        ([0.5, 0.5], "rescaled"),
        ([0.0, -1e-17], "no signal"),
        ([-0.5, -0.5], "wrong sign"),
        ([0.5, -0.1], "wrong sign"),
        ([0.5, -1e-17], "distorted"),
    ],
)
def test_a_gradient_that_is_reversed_has_the_wrong_sign_however_evenly(kept: list[float], finding: str) -> None:
    assert ExactBias(BASELINES[0], np.array([2.0, -3.0]), np.array(kept) * [2.0, -3.0]).finding == finding


def test_the_numbers_of_the_field_notes_come_out() -> None:
    found = {
        verdict.rule.title: list(verdict.expected)
        for verdict in examine(PROBLEMS[0], BASELINES, group_size=4, groups=2, seed=1)
    }
    assert true_gradient(PROBLEMS[0]) == pytest.approx([0.357, 0.055], abs=5e-4)
    assert found["per-index, to go"] == pytest.approx([0.055, 0.032], abs=5e-4)
    assert found["per-index, own turn only"] == pytest.approx([0.055, 0.032], abs=5e-4)
    assert found["return-to-go, itself in the mean"] == pytest.approx([0.268, 0.032], abs=5e-4)
    assert found["padded, to go"] == pytest.approx([0.268, 0.042], abs=7e-4)
    assert found["return-to-go"] == pytest.approx([0.357, 0.055], abs=5e-4)
    assert found["rloo"] == pytest.approx([0.357, 0.055], abs=5e-4)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{len(problem.states)} turns")
def test_the_true_gradient_is_the_slope_of_the_expected_return(problem: DecisionProblem) -> None:
    def expected_return(state: str, step: float) -> float:
        moved = replace(problem.states[state], logit=problem.states[state].logit + step)
        kinds = paths(replace(problem, states={**problem.states, state: moved}))
        assert sum(path.probability for path in kinds) == pytest.approx(1.0)
        return sum(path.probability * (sum(path.turn_rewards) + path.outcome) for path in kinds)

    slopes = [(expected_return(state, 1e-5) - expected_return(state, -1e-5)) / 2e-5 for state in problem.states]
    assert true_gradient(problem) == pytest.approx(slopes, abs=1e-9)


def test_groups_that_are_played_choice_by_choice_give_the_same() -> None:
    """Without kinds of groups or their probabilities: only the table, a policy and a rule."""
    problem, rule = PROBLEMS[1], BASELINES[0]
    kinds = {(path.states, path.slopes): path for path in paths(problem)}
    random = generator(3, "played")

    def play() -> tuple[tuple[str, ...], tuple[float, ...]]:
        name: str | None = next(iter(problem.states))
        states, slopes = [], []
        while name is not None:
            state = problem.states[name]
            probability = 1 / (1 + np.exp(-state.logit))
            first = random.random() < probability
            states.append(name)
            slopes.append(1 - probability if first else -probability)
            name = (state.first if first else state.second).then
        return tuple(states), tuple(slopes)

    groups = [[kinds[play()] for _ in range(GROUP_SIZE)] for _ in range(4000)]
    estimates = np.array([estimated_gradient(problem, rule, group) for group in groups])
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - true_gradient(problem)) / error).max() < SURE


def test_a_deviation_distorts_every_rule() -> None:
    for problem in PROBLEMS:
        for verdict in examine(problem, DEVIATIONS, group_size=GROUP_SIZE, groups=2, seed=1):
            assert verdict.finding in ("distorted", "wrong sign")


def test_every_rule_has_a_row_but_those_whose_episodes_depend_on_one_another() -> None:
    assert {rule.estimator for rule in (*BASELINES, *DEVIATIONS)} == ESTIMATORS.keys() - {"tree-grpo", "at2po"}


def test_the_page_in_docs_is_the_one_that_the_benchmark_writes() -> None:
    size, groups, seed = credit_bias.GROUP_SIZE, credit_bias.GROUPS, credit_bias.SEED
    baselines, deviations = (
        [examine(problem, rules, group_size=size, groups=groups, seed=seed) for problem in PROBLEMS]
        for rules in (BASELINES, DEVIATIONS)
    )
    written = (credit_bias.DOCS / "credit-bias.md").read_text(encoding="utf-8")
    assert written == credit_bias.page(baselines, deviations)
