"""The steps of a demonstrated plan or lesson, as words: only what the player has seen, and no more than fits.

**Truthful.** A step `verb[argument]` keeps its arguments only where every word of them has been shown; else the verb
stands alone. An oracle reads a task's hidden state: written out, its later steps would teach a policy to make up what
it cannot know (an answer before the search that finds it). Actions that are plain words stay as they are: where an
oracle sees more of a map than the player, so do its plans.

**Short.** There is no tokenizer yet when demonstrations are made. A text is counted in words, single digits and marks,
which are the pieces that no token reaches across; one that was trained on the demonstrations has about one token for
each. Three are kept for the marks of the format and the end of the reply.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

KEPT_FOR_THE_FORMAT = 3
_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_")


def worded(actions: Iterable[str], shown: str) -> list[str]:
    """Actions as steps of a plan; `shown` is all that the player has read."""
    return [_without_hidden_argument(action, shown) for action in actions]


def as_many_as_fit(beginning: str, steps: Sequence[str], tokens: int) -> str:
    """The beginning and as many of the first steps as fit into so many tokens; where none does, one step alone."""
    text = beginning + steps[0] if fits(beginning + steps[0], tokens) else steps[0]
    for step in steps[1:]:
        if not fits(f"{text}, {step}", tokens):
            break
        text += f", {step}"
    return text


def fits(text: str, tokens: int) -> bool:
    """Whether a thought is of about so many tokens at most, with what its format adds."""
    return len(_PIECES.findall(text)) + KEPT_FOR_THE_FORMAT <= tokens


def _without_hidden_argument(action: str, shown: str) -> str:
    verb, bracket, arguments = action.partition("[")
    if not bracket:
        return action
    said = arguments.replace("[", " ").replace("]", " ").split()
    return " ".join([verb.strip(), *(said if _words(said) <= _words(shown.split()) else ())])


def _words(written: Iterable[str]) -> set[str]:
    return {word.lower().strip(string.punctuation) for word in written}
