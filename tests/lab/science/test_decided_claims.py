"""Claims are decided by a stated rule from paired seeds, and nothing else."""

import math

import pytest
from scipy import stats

from lab.science.claim_verdicts import DecidedClaim, Verdict, decide
from lab.science.claims import ClaimsPage
from turnwise.data.outcomes import LeftOut
from turnwise.results.outcomes import EndedRun, Outcomes
from turnwise.results.report_data import Curve, ReportColumn, ReportData, Row
from turnwise.seeding import generator
from turnwise.statistics import student_over_seeds
from turnwise.statistics.sequential import looks_until, nominal_levels, repeated_interval, sequential_p

BETTER, WORSE = (0.50, 0.54, 0.58, 0.56, 0.52), (0.31, 0.33, 0.41, 0.35, 0.35)
STEADY, WILD = (0.50, 0.51, 0.50, 0.49, 0.50, 0.51), (0.10, 0.90, 0.35, 0.60, 0.05, 0.95)


def report(finals: dict[str, tuple[float, ...]], falling: tuple[float, ...] = ()) -> ReportData:
    """An ablation whose final success is as given, and in which `tool` falls from 1 to `falling`, of the first one."""
    curves = [
        Curve("tool", "tool success", next(iter(finals)), seed, [(1, 1.0), (30, last)])
        for seed, last in enumerate(falling, start=1)
    ]
    rows = [Row(name, "variant", {"success": student_over_seeds(values)}) for name, values in finals.items()]
    return ReportData("runs", "", [ReportColumn("success", "success")], rows, curves)


def page(*relations: dict[str, str]) -> ClaimsPage:
    """A page with a claim for each relation."""
    claims = [
        {"claim": f"claim {place}", "source": "", "relations": [{"ablation": "runs", "measure": "success", **relation}]}
        for place, relation in enumerate(relations)
    ]
    names = {"runs", *(relation["other"] for relation in relations if "other" in relation)}
    ablations = {name: {"overlays": [], "core": True, "about": ""} for name in names}
    return ClaimsPage.model_validate(
        {"title": "", "paper": "", "introduction": "", "ablations": ablations, "claims": claims}
    )


def stating(claims: ClaimsPage, worth_having: float) -> ClaimsPage:
    """The same page, with a difference in success that is worth having, stated before the runs."""
    power = {"measure": "success", "worth_having": worth_having, "deviation": 0.02, "pilot": ""}
    stated = {
        **claims.model_dump(),
        "ablations": {"runs": {"overlays": [], "core": True, "about": "", "power": [power]}},
    }
    return ClaimsPage.model_validate(stated)


def only(decisions: list[DecidedClaim]) -> DecidedClaim:
    (decision,) = decisions
    return decision


def test_seeds_are_compared_in_pairs() -> None:
    # Differences 0.19 0.21 0.17 0.21 0.17: mean 0.19, deviation 0.02, so t = 0.19 / (0.02 / sqrt 5) with 4 degrees.
    claims = page({"variant": "mt", "relation": "above", "than": "or"})
    (evidence,) = only(decide(claims, {"runs": report({"mt": BETTER, "or": WORSE})})).evidence
    t = 0.19 / (0.02 / math.sqrt(5))
    assert evidence.estimate is not None and evidence.estimate.value == pytest.approx(0.19)
    assert evidence.p == pytest.approx(2 * stats.t.sf(t, 4))
    assert evidence.corrected == evidence.p and evidence.holds


def test_a_variant_is_compared_with_one_of_another_ablation_seed_by_seed() -> None:
    claims = page({"variant": "plan", "relation": "above", "than": "plain", "other": "reference"})
    plain, planned = report({"plain": WORSE}), report({"plan": BETTER})
    others = report({"plain": WORSE}, falling=(0.5, 0.5))
    with pytest.raises(ValueError, match="the seeds must be the same in both"):
        decide(claims, {"reference": others, "runs": planned})
    assert only(decide(claims, {"runs": planned})).verdict is Verdict.NOT_RUN
    found = only(decide(claims, {"reference": plain, "runs": planned}))
    assert found.verdict is Verdict.HELD
    together = only(
        decide(
            page({"variant": "plan", "relation": "above", "than": "plain"}),
            {"runs": report({"plan": BETTER, "plain": WORSE})},
        )
    )
    assert found.evidence[0].p == together.evidence[0].p


@pytest.mark.parametrize(
    ("relation", "finals", "verdict"),
    [
        ({"variant": "a", "relation": "above", "than": "b"}, {"a": BETTER, "b": WORSE}, Verdict.HELD),
        ({"variant": "a", "relation": "below", "than": "b"}, {"a": BETTER, "b": WORSE}, Verdict.NOT_HELD),
        ({"variant": "a", "relation": "above", "than": "b"}, {"a": BETTER, "b": BETTER[::-1]}, Verdict.NOT_DECIDED),
        ({"variant": "a", "relation": "varies less than", "than": "b"}, {"a": STEADY, "b": WILD}, Verdict.HELD),
        ({"variant": "b", "relation": "varies less than", "than": "a"}, {"a": STEADY, "b": WILD}, Verdict.NOT_HELD),
    ],
)
def test_a_claim_needs_evidence_and_so_does_its_opposite(
    relation: dict[str, str], finals: dict[str, tuple[float, ...]], verdict: Verdict
) -> None:
    assert only(decide(page(relation), {"runs": report(finals)})).verdict is verdict


def test_a_relation_that_two_claims_need_is_tested_once() -> None:
    relation = {"variant": "mt", "relation": "above", "than": "or"}
    decisions = decide(page(relation, relation), {"runs": report({"mt": BETTER, "or": WORSE})})
    assert all(evidence.corrected == evidence.p for decision in decisions for evidence in decision.evidence)


def test_what_rises_or_falls_is_the_end_of_a_curve_against_its_beginning() -> None:
    claims = page({"variant": "or", "relation": "falls", "measure": "tool"})
    fallen = report({"or": WORSE}, falling=(0.1, 0.0, 0.2, 0.1, 0.1))
    assert only(decide(claims, {"runs": fallen})).verdict is Verdict.HELD
    assert only(decide(claims, {"runs": report({"or": WORSE}, falling=(1.0,) * 5)})).verdict is Verdict.NOT_DECIDED


def test_what_falls_before_another_is_seen_in_the_seeds_in_which_both_fall() -> None:
    # The early one falls at 2, 3, 2 and 4, the late one at 5, 7, 6 and never: 3, 4 and 4 apart.
    def falling(metric: str, seed: int, at: int | None) -> Curve:
        values = [1.0 if at is None or iteration < at else 0.4 for iteration in range(1, 9)]
        return Curve(metric, metric, "a", seed, list(enumerate(values, start=1)))

    falls = {"early": (2, 3, 2, 4), "late": (5, 7, 6, None)}
    curves = [falling(name, seed, at) for name, of_seeds in falls.items() for seed, at in enumerate(of_seeds)]
    runs = {"runs": ReportData("runs", "", [], [Row("a", "variant", {})], curves)}
    claims = page({"variant": "a", "relation": "falls before", "measure": "early", "later": "late"})
    (evidence,) = only(decide(claims, runs)).evidence
    assert evidence.estimate is not None and evidence.estimate.sample == (3.0, 4.0, 4.0)
    assert evidence.p == pytest.approx(float(stats.ttest_1samp([3, 4, 4], 0).pvalue)) and evidence.holds
    backwards = page({"variant": "a", "relation": "falls before", "measure": "late", "later": "early"})
    assert only(decide(backwards, runs)).verdict is Verdict.NOT_HELD


@pytest.mark.parametrize("ends", [(0.1, 1.0, 1.0), (1.0, 1.0, 1.0)])
def test_of_a_fall_that_fewer_than_two_seeds_show_nothing_is_known(ends: tuple[float, ...]) -> None:
    claims = page({"variant": "or", "relation": "falls before", "measure": "tool", "later": "tool"})
    decision = only(decide(claims, {"runs": report({"or": WORSE}, falling=ends)}))
    (evidence,) = decision.evidence
    assert evidence.estimate is None and evidence.p == 1.0 and decision.verdict is Verdict.NOT_DECIDED


def test_five_seeds_that_all_fall_alike_cannot_show_more_than_a_sign_test_can() -> None:
    claims = page({"variant": "or", "relation": "falls", "measure": "tool"})
    decision = only(decide(claims, {"runs": report({"or": WORSE}, falling=(0.0,) * 5)}))
    assert decision.evidence[0].p == 0.0625 and decision.verdict is Verdict.NOT_DECIDED


def test_more_claims_make_each_harder_to_show() -> None:
    # Differences 0.05 +- 0.04: t = 2.795 with 4 degrees, p = 0.049; a second test doubles it.
    one = {"variant": "a", "relation": "above", "than": "b"}
    finals = {"a": (0.01, 0.03, 0.05, 0.07, 0.09), "b": (0.0,) * 4 + (0.0001,), "c": (0.0,) * 4 + (0.0002,)}
    finals["a"] = tuple(value * 1.1 + 0.005 for value in finals["a"])
    alone = only(decide(page(one), {"runs": report(finals)}))
    several = decide(page(one, {"variant": "b", "relation": "above", "than": "c"}), {"runs": report(finals)})[0]
    assert several.evidence[0].p == alone.evidence[0].p
    assert several.evidence[0].corrected == pytest.approx(2 * alone.evidence[0].p)


def test_what_was_not_run_is_said_to_be_not_run() -> None:
    claims = page({"variant": "a", "relation": "above", "than": "b"})
    assert only(decide(claims, {})) == DecidedClaim(claims.claims[0], Verdict.NOT_RUN, ())


def test_a_measure_or_a_variant_that_was_not_run_is_named() -> None:
    runs = {"runs": report({"a": BETTER, "b": WORSE})}
    with pytest.raises(ValueError, match="has the variants a, b; found 'c'"):
        decide(page({"variant": "a", "relation": "above", "than": "c"}), runs)
    with pytest.raises(ValueError, match="has the measures success; found 'tool'"):
        decide(page({"variant": "a", "relation": "rises", "measure": "tool"}), runs)


def with_runs(finals: dict[str, dict[int, float]], outcomes: Outcomes | None) -> ReportData:
    """An ablation with these final successes by variant and seed, which curves name, too."""
    curves = [
        Curve("validation/sampled", "success", name, seed, [(0, 0.4), (9, value)])
        for name, values in finals.items()
        for seed, value in values.items()
    ]
    rows = [
        Row(name, "variant", {"success": student_over_seeds(list(values.values()))}) for name, values in finals.items()
    ]
    return ReportData("runs", "", [ReportColumn("success", "success")], rows, curves, outcomes=outcomes)


def test_a_run_that_was_ended_counts_in_the_verdict_on_a_claim() -> None:
    steady = {seed: 0.60 + 0.01 * seed for seed in range(1, 6)}
    wild = {1: 0.70, 2: 0.71, 3: 0.72, 4: 0.0, 5: 0.0}
    ended = Outcomes({"wild": 5}, [EndedRun("wild", seed, 3, 9, "zero_variance_groups", "") for seed in (4, 5)])
    claims = page({"variant": "wild", "relation": "above", "than": "steady"})
    (evidence,) = only(decide(claims, {"runs": with_runs({"wild": wild, "steady": steady}, ended)})).evidence
    # 0.09, 0.09, 0.09, -0.64, -0.65: the runs that went on alone would be 0.09 above
    assert evidence.estimate is not None and evidence.estimate.count == 5
    assert evidence.estimate.value == pytest.approx((3 * 0.09 - 0.64 - 0.65) / 5)
    assert not evidence.holds


def test_the_seed_of_a_run_that_a_fault_has_left_out_is_missing_from_the_pairs() -> None:
    own, other = {1: 0.5, 3: 0.7, 4: 0.9}, {1: 0.4, 2: 0.0, 3: 0.5, 4: 0.8}
    faults = Outcomes({"a": 4, "b": 4}, [], [LeftOut("a", 2, "mismatch", "")])
    claims = page({"variant": "a", "relation": "above", "than": "b"})
    (evidence,) = only(decide(claims, {"runs": with_runs({"a": own, "b": other}, faults)})).evidence
    assert evidence.estimate is not None and evidence.estimate.sample == pytest.approx((0.1, 0.2, 0.1))
    (alone,) = only(decide(claims, {"runs": with_runs({"a": {1: 0.5}, "b": other}, faults)})).evidence
    assert (alone.estimate, alone.p, alone.standing) == (None, 1.0, "open")
    none = Outcomes({"a": 1, "b": 4}, [], [LeftOut("a", 1, "mismatch", "")])
    falling = page({"variant": "a", "relation": "rises", "measure": "validation/sampled"})
    assert only(decide(falling, {"runs": with_runs({"b": other}, none)})).verdict is Verdict.NOT_DECIDED


def test_seeds_must_be_in_common() -> None:
    runs = {"runs": report({"a": BETTER, "b": WORSE[:4]})}
    with pytest.raises(ValueError, match="found 5 and 4"):
        decide(page({"variant": "a", "relation": "above", "than": "b"}), runs)


def test_a_claim_holds_only_if_all_its_relations_do() -> None:
    claims = page(
        {"variant": "a", "relation": "above", "than": "b"}, {"variant": "a", "relation": "above", "than": "c"}
    )
    joined = claims.model_copy(
        update={
            "claims": (
                claims.claims[0].model_copy(
                    update={"relations": claims.claims[0].relations + claims.claims[1].relations}
                ),
            )
        }
    )
    finals = {"a": BETTER, "b": WORSE, "c": BETTER[::-1]}
    assert only(decide(joined, {"runs": report(finals)})).verdict is Verdict.NOT_DECIDED


SLIGHTLY_BETTER = tuple(value + more for value, more in zip(WORSE, (0.03, -0.01, 0.02, -0.02, 0.03), strict=True))
"""Better than `WORSE` by 0.01 in the mean, with a deviation of 0.0235: t is 0.95, with 4 degrees, so p is 0.39."""


@pytest.mark.parametrize(
    ("variant", "relation", "than", "lacking"),
    [("slight", "above", "worse", 0.09), ("worse", "below", "slight", 0.09), ("worse", "above", "slight", 0.11)],
)
def test_a_difference_that_is_too_small_to_matter_decides_a_claim(
    variant: str, relation: str, than: str, lacking: float
) -> None:
    claims = page({"variant": variant, "relation": relation, "than": than})
    runs = {"runs": report({"slight": SLIGHTLY_BETTER, "worse": WORSE})}
    assert only(decide(claims, runs)).verdict is Verdict.NOT_DECIDED
    decision = only(decide(stating(claims, 0.1), runs))
    assert decision.verdict is Verdict.TOO_SMALL
    (evidence,) = decision.evidence
    standard_error = math.sqrt(0.00055 / 5)  # the squares about 0.01 sum to 0.0022
    assert evidence.worth_having == 0.1
    assert evidence.corrected_of_as_much == pytest.approx(2 * stats.t.sf(lacking / standard_error, 4))


def test_a_difference_that_is_shown_holds_though_it_is_less_than_was_worth_having() -> None:
    # 0.19, with a deviation of 0.02, is told from 0 and from 0.3.
    claims = stating(page({"variant": "a", "relation": "above", "than": "b"}), 0.3)
    decision = only(decide(claims, {"runs": report({"a": BETTER, "b": WORSE})}))
    (evidence,) = decision.evidence
    assert decision.verdict is Verdict.HELD and not evidence.ruled_out
    assert evidence.corrected_of_as_much is not None and evidence.corrected_of_as_much < 0.05


def test_what_may_be_as_much_as_is_worth_having_stays_open() -> None:
    claims = stating(page({"variant": "slight", "relation": "above", "than": "worse"}), 0.02)
    decision = only(decide(claims, {"runs": report({"slight": SLIGHTLY_BETTER, "worse": WORSE})}))
    assert decision.verdict is Verdict.NOT_DECIDED


def test_a_relation_of_deviations_is_never_too_small() -> None:
    claims = stating(page({"variant": "a", "relation": "varies less than", "than": "b"}), 0.1)
    (evidence,) = only(decide(claims, {"runs": report({"a": STEADY, "b": STEADY[::-1]})})).evidence
    assert (evidence.worth_having, evidence.corrected_of_as_much, evidence.ruled_out) == (None, None, False)


RACED = {1: 0.02, 2: 0.13, 3: 0.05, 4: 0.11, 5: 0.07, 6: 0.12}
"""How much better a is than b, by seed; after six seeds b was out of a race of which a had eight more."""
LOOKS = (3, 4, 5, 6, 7, 8, 9, 10)


def test_in_a_race_a_relation_has_the_sequential_p_of_its_looks_and_the_interval_that_holds_at_all_of_them() -> None:
    own = {seed: 0.5 + RACED.get(seed, 0.0) for seed in range(1, 9)}
    runs = {"runs": with_runs({"a": own, "b": dict.fromkeys(RACED, 0.5)}, None)}
    claims = page({"variant": "a", "relation": "above", "than": "b"})
    with pytest.raises(ValueError, match="found 8 and 6"):
        decide(claims, runs)

    (evidence,) = only(decide(stating(claims, 0.2), runs, {"runs": LOOKS})).evidence
    differences, taken = list(RACED.values()), LOOKS[:4]
    alone = [float(stats.ttest_1samp(differences[:seeds], 0.0).pvalue) for seeds in taken]
    assert evidence.p == pytest.approx(sequential_p(alone, taken, LOOKS[-1])) and evidence.p > 1.5 * min(alone)
    of_as_much = [float(stats.ttest_1samp(differences[:seeds], 0.2).pvalue) for seeds in taken]
    assert evidence.corrected_of_as_much == pytest.approx(sequential_p(of_as_much, taken, LOOKS[-1]))

    error = float(stats.sem(differences))
    low, high = repeated_interval(sum(differences) / 6, error, 5, nominal_levels(taken, LOOKS[-1], 0.05)[-1])
    estimate = evidence.estimate
    assert estimate is not None and (estimate.low, estimate.high) == pytest.approx((low, high))
    assert (estimate.count, estimate.level) == (6, 0.95)


def test_what_a_race_has_seen_often_enough_to_be_chance_is_not_shown() -> None:
    # At the first look p is 0.02, alone enough; a look that early spends next to none of the level.
    finals = {"a": {1: 0.60, 2: 0.62, 3: 0.64, 4: 0.50}, "b": {1: 0.50, 2: 0.50, 3: 0.50, 4: 0.55}}
    claims = page({"variant": "a", "relation": "above", "than": "b"})
    early = {name: {seed: values[seed] for seed in (1, 2, 3)} for name, values in finals.items()}
    assert only(decide(claims, {"runs": with_runs(early, None)})).verdict is Verdict.HELD
    assert only(decide(claims, {"runs": with_runs(finals, None)}, {"runs": LOOKS})).verdict is Verdict.NOT_DECIDED


def test_the_p_of_a_claim_holds_in_races_that_another_measure_ends() -> None:
    # A measure that differs by a deviation ends the race; the claim's has no difference, and nearly the same noise.
    looks, seeds, errors, uncorrected = looks_until(3, 1, 12), 12, 0, 0
    bounds = nominal_levels(looks, seeds, 0.05)
    random = generator(0, "claims in races")
    races = 400
    for _ in range(races):
        noise = random.normal(size=(2, seeds))
        raced, claimed = 1.0 + noise[0], 0.9 * noise[0] + math.sqrt(0.19) * noise[1]
        of_race, of_claim = (
            [float(stats.ttest_1samp(of[:count], 0.0).pvalue) for count in looks] for of in (raced, claimed)
        )
        over = next((place for place, p in enumerate(of_race) if p <= bounds[place]), len(looks) - 1)
        taken = looks[: over + 1]
        runs = {"a": dict(enumerate(claimed[: taken[-1]], 1)), "b": dict.fromkeys(range(1, taken[-1] + 1), 0.0)}
        claims = page({"variant": "a", "relation": "above", "than": "b"})
        (evidence,) = only(decide(claims, {"runs": with_runs(runs, None)}, {"runs": looks})).evidence
        errors += evidence.p is not None and evidence.p <= 0.05
        uncorrected += min(of_claim[: over + 1]) <= 0.05
    assert errors / races <= 0.05 < 0.1 < uncorrected / races


def test_two_ablations_are_not_paired_where_seeds_were_added_until_decided() -> None:
    claims = page({"variant": "a", "relation": "above", "than": "b", "other": "others"})
    runs = {"runs": report({"a": BETTER}), "others": report({"b": WORSE})}
    with pytest.raises(ValueError, match="seeds must be listed, not added until decided; found looks in others"):
        decide(claims, runs, {"others": LOOKS})
