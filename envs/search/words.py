"""The normal form in which texts are searched, compared and matched."""

from __future__ import annotations

import re
import unicodedata

ARTICLES = frozenset({"a", "an", "the"})
_INSIDE_WORDS = re.compile(r"(?<=\d),(?=\d)|['’ʻ`.]")
"""Characters removed without splitting the word: `522,250` gives `522250`, `N'Djamena` `NDjamena`, `U.S.` `US`."""
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """Lower-case words with single spaces between them, without accents, punctuation and articles.

    The usual normal form of answers to questions (SQuAD's), except that a hyphen, a slash or an underscore separates
    words, as a search engine needs it.
    """
    letters = text.lower() if text.isascii() else _without_accents(text)
    words = _BETWEEN_WORDS.sub(" ", _INSIDE_WORDS.sub("", letters)).split()
    return " ".join(word for word in words if word not in ARTICLES)


def _without_accents(text: str) -> str:
    # Decomposed twice: some letters, such as mathematical ones, become ordinary capitals only by decomposition, after
    # which `casefold` can lower them.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def holds(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase as whole words, both in normal form. False for an empty phrase."""
    return phrase != "" and f" {phrase} " in f" {text} "
