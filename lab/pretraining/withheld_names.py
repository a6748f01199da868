"""Which texts mention a name that is withheld from training, because only validation and test tasks are about it."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import groupby

_WORD = re.compile(r"\w+")


class WithheldNames:
    """Names of one or several words, looked for in texts as whole words, with any punctuation between them.

    Case matters: Of is a city, of is not.
    """

    def __init__(self, names: Collection[str]) -> None:
        words = sorted((tuple(_words(name)) for name in names), key=len)
        self._by_length = {length: frozenset(each) for length, each in groupby(words, key=len) if length}

    def found_in(self, text: str) -> bool:
        """Whether the text mentions at least one of the names."""
        words = _words(text)
        return any(
            tuple(words[place : place + length]) in names
            for length, names in self._by_length.items()
            for place in range(len(words) - length + 1)
        )


def _words(text: str) -> list[str]:
    return _WORD.findall(text)
