"""The candidates of a sweep: grids, random draws, names, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.config.quantities import NAME
from turnwise.config.sweeps import Range, candidates, read_choices, split_settings
from turnwise.errors import ConfigurationError

RATE, CLIP = "optimization.learning_rate", "optimization.clip_high"


def test_a_setting_with_commas_is_tried_and_one_without_holds_for_all() -> None:
    fixed, tried = split_settings(
        [f"{RATE}=1e-4,3e-4", "optimization.iterations=4", "world.parameters.hops=[1, 2]", "a.b=[1,2],[3]", "a.c='x,y'"]
    )
    assert fixed == ["optimization.iterations=4", "world.parameters.hops=[1, 2]", "a.c='x,y'"]
    assert tried == {RATE: [0.0001, 0.0003], "a.b": [[1, 2], [3]]}


def test_a_grid_is_every_combination_in_order() -> None:
    found = candidates({RATE: [0.1, 0.2], CLIP: [0.2, None]})
    assert [each.name for each in found] == [
        "learning_rate-0.1_clip_high-0.2",
        "learning_rate-0.1_clip_high-None",
        "learning_rate-0.2_clip_high-0.2",
        "learning_rate-0.2_clip_high-None",
    ]
    assert found[1].values == {RATE: 0.1, CLIP: None}


def test_names_are_those_of_variants_and_differ() -> None:
    alike = candidates({"a.rate": [1], "b.rate": [2, 3]})
    assert [each.name for each in alike] == ["a.rate-1_b.rate-2", "a.rate-1_b.rate-3"]
    odd = candidates({"a.b": ["x/y", "x y", {"k": [1]}]})
    assert [each.name for each in odd] == ["candidate-1", "candidate-2", "candidate-3"]
    assert all(NAME.fullmatch(each.name) for each in (*alike, *odd))


@given(st.floats(1e-8, 1e3), st.floats(1.5, 1e4), st.sampled_from(["linear", "log"]), st.integers(1, 20))
def test_draws_lie_in_their_range_and_more_draws_keep_the_first(
    low: float, factor: float, scale: str, draws: int
) -> None:
    chosen = {RATE: Range(low=low, high=low * factor, scale=scale)}
    found = [each.values[RATE] for each in candidates(chosen, draws)]
    assert all(low <= value <= low * factor for value in found)
    assert [each.values[RATE] for each in candidates(chosen, draws + 5)][: len(found)] == found


def test_log_draws_are_uniform_in_the_logarithm() -> None:
    found = [each.values[RATE] for each in candidates({RATE: Range(low=1e-6, high=1e-2, scale="log")}, 400)]
    below = sum(value < 1e-4 for value in found) / len(found)
    assert math.isclose(below, 0.5, abs_tol=0.1)


def test_a_file_holds_lists_and_ranges(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(f"{RATE}: {{ low: 1e-5, high: 1e-3, scale: log }}\n{CLIP}: [0.2, 0.28]\n")
    assert read_choices(path) == {RATE: Range(low=1e-5, high=1e-3, scale="log"), CLIP: [0.2, 0.28]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must hold a mapping of sections; found nothing"),
        ("a.b: 3\n", "a.b must be a list of values, or low and high; found 3"),
        ("a.b: []\n", "a.b must be a list of values"),
        ("a.b: { low: 1 }\n", "a.b: high"),
    ],
)
def test_a_file_that_says_nothing_to_try_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as found:
        read_choices(tmp_path / "values.yaml")
    assert said in str(found.value)


def test_what_cannot_be_tried_is_refused() -> None:
    for choices, draws, said in (
        ({}, None, "a sweep must have a key with several values"),
        ({RATE: Range(low=0.1, high=0.2)}, None, "a range must be drawn from: give --random N"),
        ({RATE: Range(low=0.2, high=0.1)}, 3, "low must be below high"),
        ({RATE: Range(low=0.0, high=0.1, scale="log")}, 3, "low must be above 0 for scale: log"),
        ({RATE: [0.1], CLIP: []}, None, f"{CLIP} must be a list of values, or low and high; found []"),
        ({RATE: []}, 3, f"{RATE} must be a list of values, or low and high; found []"),
        ({RATE: [0.1]}, 0, "random draws must be at least 1; found 0"),
        ({RATE: list(range(40)), CLIP: list(range(40))}, None, "at most 1000 candidates; found 1600"),
    ):
        with pytest.raises(ConfigurationError) as found:
            candidates(choices, draws)  # type: ignore[arg-type]
        assert said in str(found.value)
