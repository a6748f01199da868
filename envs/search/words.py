"""The normal form in which texts are searched, compared and matched."""

from __future__ import annotations

import re
import unicodedata

ARTICLES = frozenset({"a", "an", "the"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d)")
_INSIDE_WORDS = re.compile(rf"{_THOUSANDS.pattern}|['’ʻ`.]")
"""Characters removed without splitting the word: `522,250` gives `522250`, `N'Djamena` `NDjamena`, `U.S.` `US`."""
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_ASCII = str.maketrans({mark: _BETWEEN_WORDS.sub(" ", _INSIDE_WORDS.sub("", mark)) for mark in map(chr, range(128))})
"""What both do to each ASCII character but a comma between digits: texts in ASCII are translated in a third of the time
that the patterns take.
"""


def normalise(text: str) -> str:
    """Lower-case words with single spaces between them, without accents, punctuation and articles.

    The usual normal form of answers to questions (SQuAD's), except that a hyphen, a slash or an underscore separates
    words, as a search engine needs it.
    """
    if text.isascii():
        letters = (_THOUSANDS.sub("", text) if "," in text else text).lower().translate(_ASCII)
    else:
        letters = _BETWEEN_WORDS.sub(" ", _INSIDE_WORDS.sub("", _without_accents(text)))
    return " ".join([word for word in letters.split() if word not in ARTICLES])


def _without_accents(text: str) -> str:
    # Decomposed twice: some letters, such as mathematical ones, become ordinary capitals only by decomposition, after
    # which `casefold` can lower them.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def holds(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase as whole words, both in normal form. False for an empty phrase."""
    return phrase != "" and f" {phrase} " in f" {text} "
