"""How the tokens of a reply are spelled, one by one: for people who look at them, never to be encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
_INCOMPLETE = "�"
_LONGEST_CHARACTER = 4
"""Bytes, and so at most as many tokens."""


class Spelling:
    """The texts of a tokenizer's tokens. Light: it needs the tokenizer's file and no model library."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))

    def __call__(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token. Where several tokens make one character it stands with the last of them."""
        texts: list[str] = []
        waiting: list[int] = []
        for token in tokens:
            waiting.append(token)
            text = self._tokenizer.decode(waiting, skip_special_tokens=False)
            if text.endswith(_INCOMPLETE) and len(waiting) < _LONGEST_CHARACTER:
                texts.append("")
            else:
                texts.append(text)
                waiting = []
        if waiting:
            texts[-1] = self._tokenizer.decode(waiting, skip_special_tokens=False)
        return texts
