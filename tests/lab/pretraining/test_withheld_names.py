"""Names are found as whole words, in their own case and with any punctuation, and nowhere else."""

from __future__ import annotations

import pytest

from lab.pretraining.pretrain import WithheldNames


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The capital of South  Korea?", True),
        ("South-Korea", True),
        ("south korea", False),
        ("South of Korea", False),
        ("Perth", True),
        ("Perthshire", False),
        ("", False),
    ],
)
def test_a_name_is_found_as_whole_words(text: str, found: bool) -> None:
    assert WithheldNames(["South Korea", "Perth"]).found_in(text) is found


def test_without_names_nothing_is_found() -> None:
    assert not WithheldNames([]).found_in("Perth")
    assert not WithheldNames(["!"]).found_in("Perth!")
