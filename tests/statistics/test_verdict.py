import numpy as np
import pytest

from turnwise.seeding import generator
from turnwise.statistics import ReferencePoints, Results, judge
from turnwise.statistics.power import smallest_decided, smallest_found
from turnwise.statistics.verdict import smallest_decidable


def results(level: float, seeds: int, name: str = "runs", tasks: int = 30, spread: float = 0.03) -> Results:
    """Runs of a variant: a success for every task, four replicas each."""
    random = generator(5, name, seeds, str(level))
    of_runs = level + spread * random.normal(size=seeds)
    return Results(
        {
            seed: {f"task {task}": float(random.binomial(4, np.clip(of_runs[seed], 0, 1)) / 4) for task in range(tasks)}
            for seed in range(seeds)
        }
    )


def test_a_variant_that_is_better_is_called_so_and_one_that_is_alike_is_not() -> None:
    variants = {"good": results(0.8, 5), "alike": results(0.8, 5, "others"), "poor": results(0.3, 5)}
    judged = judge(
        "success",
        variants,
        frames=dict.fromkeys(variants, ReferencePoints(results(0.3, 1, "start", spread=0), 0.1, 1.0)),
    )
    verdicts = {(pair.first, pair.second): pair.verdict for pair in judged.pairs}
    assert verdicts == {
        ("good", "alike"): "not distinguishable",
        ("good", "poor"): "higher",
        ("alike", "poor"): "higher",
    }
    gains = {standing.name: standing.gain for standing in judged.standings}
    assert gains["good"] is not None and gains["good"].verdict == "higher" and gains["good"].second == "warm start"
    assert gains["poor"] is not None and gains["poor"].verdict == "not distinguishable"
    good = judged.standings[0]
    assert good.normalised is not None and good.normalised.value == pytest.approx((good.mean.value - 0.1) / 0.9)


def test_both_families_are_corrected_and_the_notes_say_so() -> None:
    variants = {name: results(level, 5, name) for name, level in (("a", 0.5), ("b", 0.52), ("c", 0.8))}
    judged = judge("success", variants, frames=dict.fromkeys(variants, ReferencePoints(results(0.4, 1, "start"))))
    for family in (judged.pairs, judged.gains):
        least = min(family, key=lambda each: each.p or 0.0)
        assert least.corrected == pytest.approx(min(1.0, 3 * (least.p or 0.0)))
    assert any("3 pairs of variants are corrected together by Holm's method" in note for note in judged.notes)
    assert any("cannot go below p = 0.062" in note for note in judged.notes)
    assert judged.pairs[0].smallest == 0.0625


def test_with_one_seed_nothing_is_decided() -> None:
    variants = {"a": results(0.9, 1), "b": results(0.1, 1)}
    judged = judge("success", variants, frames=dict.fromkeys(variants, ReferencePoints(results(0.1, 1, "start"))))
    assert [pair.verdict for pair in judged.pairs] == ["one seed: not decided"]
    assert [standing.mean.absence for standing in judged.standings] == ["one seed: no interval"] * 2
    assert judged.standings[0].gain is not None and judged.standings[0].gain.corrected is None
    assert judged.notes == ["Where a variant has one seed there is no interval and no verdict."]


def test_what_needs_two_runs_a_side_is_left_out_where_a_side_has_one() -> None:
    one = Results({0: {"a": 0.5, "b": 1.0}})
    two = Results({0: {"a": 0.0, "b": 0.25}, 1: {"a": 0.25, "b": 0.5}})
    (pair,) = judge("success", {"one": one, "two": two}).pairs
    assert (pair.improvement, pair.exact, pair.smallest) == (None, None, None)
    (of_two,) = judge("success", {"one": two, "two": two}).pairs
    assert (of_two.improvement, of_two.exact, of_two.smallest, of_two.paired) == (0.5, 1.0, 0.5, True)


def test_notes_say_what_was_corrected_and_where_one_seed_decides_nothing() -> None:
    variants = {"a": results(0.5, 3), "b": results(0.6, 3), "c": results(0.6, 1)}
    start = dict.fromkeys(variants, ReferencePoints(results(0.4, 1, "start")))
    notes = judge("success", variants, frames=start).notes
    assert [note.split(" are corrected")[0] for note in notes[:1]] == ["The 2 gains over the warm start"]
    assert notes[-1] == "Where a variant has one seed there is no interval and no verdict."
    (alone,) = judge("success", {"a": results(0.5, 3), "b": results(0.6, 3)}).notes
    assert "cannot go below p = 0.25" in alone, "one pair is not corrected"


def test_runs_without_a_common_task_have_no_profile() -> None:
    apart = Results({1: {"a": 0.5}, 2: {"b": 1.0}})
    assert judge("success", {"a": apart}).profiles == {}


def test_two_tasks_in_common_are_enough_to_compare_task_by_task() -> None:
    first = Results({seed: {"a": 0.5, "b": 0.25 * seed, "mine": 1.0} for seed in range(3)})
    second = Results({seed: {"a": 0.25, "b": 0.25 * seed, "yours": 0.0} for seed in range(3)})
    judged = judge("success", {"a": first, "b": second}, frames={"a": ReferencePoints(second)})
    assert judged.pairs[0].difference.value == 0.125 and judged.pairs[0].paired
    assert judged.standings[0].gain is not None and judged.standings[0].gain.difference.value == 0.125


def test_a_measure_beyond_0_and_1_is_not_cut_to_them_and_has_no_profile() -> None:
    runs = Results({seed: {"a": 2.0 + seed, "b": 4.0 + seed} for seed in range(3)})
    returns = judge("return", {"a": runs}, share=False)
    mean = returns.standings[0].mean
    # 4 +- 4.302653 / sqrt(3)
    assert mean.value == 4.0 and mean.low == pytest.approx(1.515862) and mean.high == pytest.approx(6.484138)
    assert returns.profiles == {}
    share = judge("success", {"a": Results({0: {"a": 0.5, "b": 1.0}, 1: {"a": 1.0, "b": 1.0}})})
    assert share.standings[0].mean.high == 1.0 and share.profiles["a"][0][0] < 1.0


def test_between_random_and_oracle_needs_both() -> None:
    only_random = judge("success", {"a": results(0.5, 3)}, frames={"a": ReferencePoints(random=0.1)})
    assert only_random.standings[0].normalised is None


def test_variants_with_other_seeds_are_compared_without_pairing() -> None:
    others = Results({seed + 10: tasks for seed, tasks in results(0.5, 4).runs.items()})
    pair = judge("success", {"a": results(0.5, 3), "b": others}).pairs[0]
    assert not pair.paired
    assert pair.smallest == pytest.approx(2 / 35)  # 7 over 3


def test_runs_are_paired_by_seed_in_whatever_order_they_come() -> None:
    runs = results(0.5, 4)
    backwards = Results(dict(reversed(runs.runs.items())))
    pair = judge("success", {"a": runs, "b": backwards}).pairs[0]
    assert (pair.difference.value, pair.p, pair.verdict) == (0.0, 1.0, "not distinguishable")


def test_variants_that_were_tested_on_other_tasks_are_compared_by_whole_runs() -> None:
    others = Results({seed: {f"other {task}": 0.25 * seed for task in range(3)} for seed in range(3)})
    pair = judge("success", {"a": results(0.9, 3), "b": others}).pairs[0]
    assert (pair.difference.over, pair.paired, pair.p is None) == ("seeds", False, False)


def test_a_task_set_of_one_task_gives_no_gain_but_whole_runs_are_compared() -> None:
    variants = {"a": results(0.9, 3, tasks=1), "b": results(0.1, 3, tasks=1)}
    judged = judge(
        "success", variants, frames=dict.fromkeys(variants, ReferencePoints(results(0.1, 1, "start", tasks=1)))
    )
    assert [standing.gain for standing in judged.standings] == [None, None]
    assert judged.pairs[0].difference.over == "seeds"


def test_curves_tell_the_area_and_when_the_stated_success_was_reached() -> None:
    curves = {"a": [[(0, 0.2), (10, 0.9)], [(0, 0.2), (10, 0.4)]]}
    (learning,) = judge("success", {"a": results(0.5, 2)}, curves=curves, stated=0.9).learning
    assert learning.area is not None and learning.area.value == pytest.approx((0.55 + 0.3) / 2)
    assert (learning.reached.at, learning.reached.median) == ((10, None), None)


def test_a_pair_says_below_which_difference_its_runs_decide_nothing() -> None:
    # Two tasks that every run solves alike: the differences over seeds are 0.1, 0.2 and 0.3, so that the error is
    # 0.1 / sqrt(3) with two degrees of freedom, as in a paired t test.
    first = Results({seed: dict.fromkeys("ab", 0.5 + 0.1 * seed) for seed in (1, 2, 3)})
    second = Results({seed: dict.fromkeys("ab", 0.5) for seed in (1, 2, 3)})
    smallest = smallest_decidable(first, second, significance=0.05)
    assert smallest == pytest.approx(smallest_decided(0.1, 3, 0.05)) and smallest is not None and smallest > 0.2
    assert judge("success", {"a": first, "b": second}).pairs[0].verdict == "not distinguishable"
    assert smallest_decidable(Results({1: {"a": 1.0}}), Results({1: {"a": 0.0}}), significance=0.05) is None


def test_policies_without_seeds_are_compared_over_tasks() -> None:
    first = Results({0: {f"task {place}": float(place % 4 > 0) for place in range(40)}})
    second = Results({0: {f"task {place}": float(place % 4 > 1) for place in range(40)}})
    judged = judge("accuracy", {"first": first, "second": second}, policies=True)
    (pair,) = judged.pairs
    assert (pair.verdict, pair.difference.over, pair.difference.count) == ("higher", "tasks", 40)
    assert (pair.effect, pair.exact) == (None, None)
    assert [standing.mean.over for standing in judged.standings] == ["tasks", "tasks"]
    assert judged.standings[0].interquartile_mean is None
    # 0.25 has the deviation sqrt(0.1875 * 40 / 39) over 40 tasks.
    error = (0.25 * 0.75 / 39) ** 0.5
    smallest = smallest_decidable(first, second, significance=0.05, policies=True)
    assert smallest == pytest.approx(smallest_found(error, 39, 0.05))
