"""What holds of `sciworld` on a machine without Java, too."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.sciworld import SciWorld
from envs.sciworld.episode import played_prefix
from envs.sciworld.variations import COUNTS, numbers
from envs.sciworld.world import SHORT


def test_every_variation_is_in_one_split() -> None:
    for type, count in COUNTS.items():
        assert [*numbers(type, "train"), *numbers(type, "validation"), *numbers(type, "test")] == list(range(count))


def test_missing_java_is_missed_by_who_plays_and_not_by_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    world = SciWorld()
    (task,) = world.tasks("test", 1)
    for play in (world.require_programs, lambda: world.make(task, 0)):
        with pytest.raises(ValueError, match="sciworld must find Java on the path"):
            play()


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_path_is_taken_up_behind_what_was_played_of_it(path: list[str], detours: list[str]) -> None:
    place = played_prefix(path, [])
    assert place == 0
    for length in range(len(path)):
        assert played_prefix(path, path[:length]) == length
    assert played_prefix(path, path) == 0
    after = played_prefix(path, detours)
    assert played_prefix(path, [*detours, path[after]]) == (after + 1) % len(path)


def test_the_default_types_are_known() -> None:
    assert set(SHORT) <= set(COUNTS)
