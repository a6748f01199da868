"""The normal form in which texts are searched and compared: lower-case words without punctuation."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return _WORD.findall(text.casefold())


INSIGNIFICANT = frozenset(
    words(
        "a about also am an and any are at be buy by can color could find for from get has have help i if im in is it "
        "like look looking me most must my need of on one or please price prefer should show size so some something "
        "that the them there these they this to want wanted was will with would you your"
    )
)
"""Words that say nothing about what is wanted."""


def significant(text: str) -> list[str]:
    """Distinct words of a text that describe a product: of two characters or more, no number, not `INSIGNIFICANT`."""
    candidates = (word for word in words(text) if len(word) > 1 and not word.isdigit() and word not in INSIGNIFICANT)
    return list(dict.fromkeys(candidates))


def holds(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase as whole words. False for an empty phrase."""
    normal_phrase = " ".join(words(phrase))
    return normal_phrase != "" and f" {normal_phrase} " in f" {' '.join(words(text))} "
