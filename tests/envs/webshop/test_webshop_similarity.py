import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.similarity import alike, token_set_ratio

phrases = st.text(alphabet="abc ", max_size=12)


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [
        # The examples of thefuzz and rapidfuzz: one has all the words of the other.
        ("fuzzy wuzzy was a bear", "fuzzy fuzzy was a bear", 100),
        ("mariners vs angels", "los angeles angels vs seattle mariners", 100),
        # Common "essential"; "oil" and "oils" differ by one letter: 1 - 1 / (13 + 14).
        ("essential oil", "essential oils", 96),
        # Common "tea"; the best is "tea" against "tea bag": 1 - 4 / (3 + 7).
        ("tea tree", "tea bag", 60),
        # Nothing in common: of "navy" and "gray" the letters a, y stay: 1 - 4 / (4 + 4).
        ("navy", "gray", 50),
        ("Non-Slip!", "slip non", 100),
        ("", "anything", 0),
        ("...", "...", 0),
    ],
)
def test_the_ratio_by_hand(first: str, second: str, ratio: int) -> None:
    assert token_set_ratio(first, second) == ratio


@given(phrases, phrases)
def test_the_ratio_is_symmetric_and_between_0_and_100(first: str, second: str) -> None:
    assert token_set_ratio(first, second) == token_set_ratio(second, first)
    assert 0 <= token_set_ratio(first, second) <= 100


@given(phrases)
def test_a_phrase_that_has_a_word_is_like_itself(phrase: str) -> None:
    assert token_set_ratio(phrase, phrase) == (100 if phrase.strip() else 0)


def test_two_phrases_are_alike_above_85() -> None:
    assert alike("essential oil", "essential oils") and not alike("3 feet", "6 feet")
