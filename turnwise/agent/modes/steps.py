"""The steps of a demonstrated plan or lesson, as text: only what the policy has seen, and no more than fits.

**Truthful.** A step `verb[argument]` keeps its argument only if every word of it has been shown; otherwise the verb
stands alone. An oracle reads a task's hidden state: written out in full, its later steps would teach a policy to invent
what it cannot know (an answer before the search that finds it). Actions that are plain words are kept: where an oracle
sees more of a map than the policy, its plans do too.

**Short.** No tokenizer exists yet when demonstrations are made. The length of a text is counted in words, single digits
and punctuation marks, which no token spans; a tokenizer trained on the demonstrations has about one token for each.
Three more are reserved for the tags of the format and the end of the reply.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

KEPT_FOR_THE_FORMAT = 3
_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_")


def worded(actions: Iterable[str], shown_text: str) -> list[str]:
    """Actions as steps of a plan; `shown_text` is all text that the policy has been shown."""
    return [_without_hidden_argument(action, shown_text) for action in actions]


def as_many_as_fit(beginning: str, steps: Sequence[str], tokens: int) -> str:
    """`beginning` and as many of the first steps as fit into `tokens`; if none fits, the first step alone."""
    text = beginning + steps[0] if fits(beginning + steps[0], tokens) else steps[0]
    for step in steps[1:]:
        if not fits(f"{text}, {step}", tokens):
            break
        text += f", {step}"
    return text


def fits(text: str, tokens: int) -> bool:
    """Whether a thought has at most about `tokens` tokens, including those that its format adds."""
    return len(_PIECES.findall(text)) + KEPT_FOR_THE_FORMAT <= tokens


def _without_hidden_argument(action: str, shown_text: str) -> str:
    verb, bracket, arguments = action.partition("[")
    if not bracket:
        return action
    words = arguments.replace("[", " ").replace("]", " ").split()
    return " ".join([verb.strip(), *(words if _words(words) <= _words(shown_text.split()) else ())])


def _words(words: Iterable[str]) -> set[str]:
    return {word.lower().strip(string.punctuation) for word in words}
