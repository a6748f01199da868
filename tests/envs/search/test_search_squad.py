import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.search.squad import exact_match, f1, squad_normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat's  hat!", "cats hat"),
        ("a an the", ""),
        ("theatre", "theatre"),
        ("well-known", "wellknown"),
        ("U.S.", "us"),
        ("1,234", "1234"),
        ("São Tomé", "são tomé"),
        ("an\tapple\n", "apple"),
    ],
)
def test_the_normal_form_is_squads(text: str, normal: str) -> None:
    assert squad_normal(text) == normal


def test_exact_match_is_with_any_alias() -> None:
    assert exact_match("The Denver Broncos!", ["Carolina", "denver broncos"]) == 1.0
    assert exact_match("Denver", ["Denver Broncos"]) == 0.0
    assert exact_match("", ["Denver"]) == 0.0


@pytest.mark.parametrize(
    ("answer", "aliases", "score"),
    [
        ("the cat sat", ["cat sat down"], 0.8),  # two common of two and three
        ("cat cat", ["cat"], 2 / 3),  # a word counts as often as both have it: once
        ("cat cat", ["cat cat dog"], 0.8),  # and twice
        ("Denver", ["Carolina", "Denver Broncos"], 2 / 3),  # the best alias
        ("a b c d", ["d"], 0.5),  # b, c, d against d: the article does not count
        ("cat", ["dog"], 0.0),
        ("the", ["dog"], 0.0),
    ],
)
def test_f1_by_hand(answer: str, aliases: list[str], score: float) -> None:
    assert f1(answer, aliases) == pytest.approx(score)


@given(st.text(), st.text())
def test_f1_is_between_0_and_1_symmetric_and_1_for_equal_answers(answer: str, alias: str) -> None:
    assert 0 <= f1(answer, [alias]) <= 1
    assert f1(answer, [alias]) == f1(alias, [answer])
    if squad_normal(answer):
        assert f1(answer, [answer]) == exact_match(answer, [answer]) == 1
