"""The sentence that says what an ablation found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.reporting.finding import finding, report_finding
from turnwise.results.report_data import ReportData
from turnwise.statistics import Comparison, Interval, Judgement, Results, VariantResult, judge


def interval(value: float, low: float | None = None, high: float | None = None, seeds: int = 5) -> Interval:
    return Interval(value, low, high, "seeds and tasks" if low is not None else "seeds", seeds)


def compared(first: str, second: str, value: float, verdict: str) -> Comparison:
    # The bounds lie 0.08 to either side.
    found = interval(value, round(value - 0.08, 2), round(value + 0.08, 2))
    return Comparison(first, second, found, 0.01, 0.02, verdict, True)  # type: ignore[arg-type]


def gained(name: str, value: float, verdict: str, seeds: int = 5) -> VariantResult:
    mean = interval(0.5 + value, seeds=seeds)
    return VariantResult(name, mean, mean, None, compared(name, "warm start", value, verdict))


def judgement(standings: list[VariantResult], pairs: list[Comparison]) -> Judgement:
    return Judgement("success", standings, pairs, 0.95, [])


def test_the_best_variant_the_gains_and_the_greedy_gains_are_one_sentence() -> None:
    sampled = judgement(
        [
            gained("turn", 0.3, "higher"),
            gained("merged", 0.05, "not distinguishable"),
            gained("outcome", 0.2, "higher"),
        ],
        [
            compared("merged", "turn", -0.25, "lower"),
            compared("merged", "outcome", -0.15, "lower"),
            compared("turn", "outcome", 0.1, "not distinguishable"),
        ],
    )
    greedy = judgement(
        [
            gained("turn", 0.31, "higher"),
            gained("merged", 0.02, "not distinguishable"),
            gained("outcome", 0.22, "higher"),
        ],
        [],
    )
    assert finding(sampled, greedy) == (
        "turn beats merged by 0.25 (0.17 to 0.33) in success, and cannot be told apart from outcome; all but merged "
        "beat the warm start, also with greedy replies (turn +0.31, outcome +0.22, merged +0.02)."
    )


def test_where_greedy_replies_say_something_else_that_is_said() -> None:
    sampled = judgement([gained("a", 0.2, "higher"), gained("b", 0.1, "higher")], [compared("a", "b", 0.1, "higher")])
    greedy = judgement([gained("a", 0.2, "higher"), gained("b", -0.3, "lower")], [])
    assert finding(sampled, greedy) == (
        "a beats b by 0.10 (0.02 to 0.18) in success; both beat the warm start; "
        "with greedy replies a beats it, b falls below it (a +0.20, b -0.30)."
    ).replace("-", "−")


def test_what_cannot_be_told_apart_is_called_no_difference() -> None:
    same = "not distinguishable"
    three = [gained("a", 0.1, same), gained("b", 0.1, same), gained("c", 0.12, same)]
    pairs = [compared("a", "b", 0.3, same), compared("a", "c", 0.3, same), compared("b", "c", 0.3, same)]
    assert finding(judgement(three, pairs), judgement(three, [])) == (
        "No two of the 3 variants can be told apart in success; none beats the warm start, "
        "nor with greedy replies (c +0.12, a +0.10, b +0.10)."
    )
    assert finding(judgement(three[:2], pairs[:1]), judgement(three[:2], [])) == (
        "The two variants cannot be told apart in success: they are 0.30 (0.22 to 0.38) apart; "
        "none beats the warm start, nor with greedy replies (+0.10 each)."
    )


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (2, "The two variants are 1.00 apart in success wherever both were tested, and 2 seeds are too few to decide."),
        (20, "b beats a by 1.00 in success."),
    ],
)
def test_a_difference_that_is_the_same_in_every_run_is_decided_by_their_number(seeds: int, said: str) -> None:
    a, b = (Results({seed: {"x": value, "y": value} for seed in range(seeds)}) for value in (0.0, 1.0))
    assert finding(judge("success", {"a": a, "b": b})) == said


def test_a_fall_below_the_warm_start_is_named() -> None:
    standings = [gained("a", 0.2, "higher"), gained("b", -0.2, "lower"), gained("c", -0.3, "lower")]
    pairs = [compared("a", "b", 0.4, "higher"), compared("c", "a", -0.5, "lower")]
    assert finding(judgement(standings, pairs)) == (
        "a beats b by 0.40 (0.32 to 0.48) and c by 0.50 (0.42 to 0.58) in success; "
        "a beats the warm start, b and c fall below it."
    )


def test_of_many_that_are_beaten_the_nearest_has_its_distance() -> None:
    standings = [gained(name, value, "higher") for name, value in (("a", 0.4), ("b", 0.1), ("c", 0.2), ("d", 0.3))]
    pairs = [compared("a", name, value, "higher") for name, value in (("b", 0.3), ("c", 0.2))]
    pairs += [compared("d", "a", -0.1, "lower"), compared("b", "c", -0.1, "not distinguishable")]
    assert finding(judgement(standings, pairs)) == (
        "a beats b, c and d, the nearest (d) by 0.10 (0.02 to 0.18), in success; all beat the warm start."
    )


def test_where_the_highest_mean_beats_nothing_the_largest_difference_is_told() -> None:
    standings = [gained("wide", 0.4, "higher"), gained("a", 0.3, "higher"), gained("b", 0.1, "higher")]
    pairs = [compared("wide", "b", 0.3, "not distinguishable"), compared("a", "b", 0.2, "higher")]
    assert finding(judgement(standings, pairs)) == (
        "a beats b by 0.20 (0.12 to 0.28) in success, and cannot be told apart from wide; all beat the warm start."
    )


def test_one_variant_is_compared_with_the_warm_start_alone() -> None:
    alone = judgement([gained("a", 0.2, "higher")], [])
    assert finding(alone, alone) == "a beats the warm start, also with greedy replies (+0.20)."


def test_all_variants_that_gain_are_said_to_beat_the_warm_start() -> None:
    both = judgement([gained("a", 0.2, "higher"), gained("b", 0.3, "higher")], [compared("a", "b", -0.1, "lower")])
    assert finding(both, both) == (
        "b beats a by 0.10 (0.02 to 0.18) in success; both beat the warm start, "
        "also with greedy replies (b +0.30, a +0.20)."
    )


def test_of_many_greedy_gains_the_least_and_the_most_are_named() -> None:
    standings = [gained(name, value, "higher") for name, value in (("a", 0.4), ("b", -0.1), ("c", 0.2), ("d", 0.3))]
    assert finding(judgement(standings, []), judgement([*standings, gained("e", 0.1, "higher")], [])).endswith(
        "all beat the warm start, also with greedy replies (from b −0.10 to a +0.40)."
    )


def test_one_seed_decides_nothing() -> None:
    undecided = "one seed: not decided"
    standings = [gained("a", 0.2, undecided, seeds=1), gained("b", 0.31, undecided, seeds=1)]
    assert finding(judgement(standings, [compared("a", "b", -0.11, undecided)])) == (
        "One seed decides nothing; the highest success is b's, 0.81."
    )


def test_what_others_with_several_seeds_have_decided_is_said_although_one_has_a_single_seed() -> None:
    runs = {"a": (0.1, 0.12, 0.11), "b": (0.5, 0.53, 0.5), "c": (0.9,)}
    results = {
        name: Results({seed: {"x": value, "y": value + 0.01 * seed} for seed, value in enumerate(values)})
        for name, values in runs.items()
    }
    assert finding(judge("success", results)).startswith("b beats a by 0.40 ")


def test_of_policies_one_task_decides_nothing() -> None:
    results = {name: Results({0: {"x": value}}) for name, value in (("a", 0.2), ("b", 0.3))}
    assert finding(judge("success", results, policies=True)).startswith("One task decides nothing; ")


def test_without_a_warm_start_or_a_second_variant_there_is_nothing_to_compare_with() -> None:
    alone = VariantResult("a", interval(0.5), interval(0.5), None, None)
    assert finding(judgement([alone], [])) == "There is only a, 0.50 in success: nothing to compare."


def test_variants_that_had_nothing_to_begin_with_are_named_first() -> None:
    notes = ["Variants: ...", "Before iteration 1 of grpo, rloo: sampled success 0.00: a longer warm start may help."]
    report = ReportData("my_task", "", [], [], notes=notes)
    assert report_finding(report) == "Reinforcement had nothing to begin with in grpo, rloo: see the notes."
    assert report_finding(replace(report, notes=notes[:1])) == ""
