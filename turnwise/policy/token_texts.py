"""The texts of single tokens, for display only: they are never encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
_INCOMPLETE = "�"
_LONGEST_CHARACTER = 4
"""The bytes of the longest character in UTF-8, so the most tokens that one character can have."""


class Spelling:
    """A callable from tokens to their texts. It needs only the tokenizer's file in `folder`, and no model library."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))

    def __call__(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token. Where several tokens make one character, the last has it; the others are empty."""
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
