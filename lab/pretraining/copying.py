"""Sequences that teach a policy to copy what it has never seen: the names in an observation, a span of tokens.

A policy that learned from a few thousand demonstrations knows their names by heart and cannot repeat a new one, and no
reward teaches it, since it never does so by chance. What it lacks is an attention head that looks for the earlier place
at which the present token stood, and takes what followed there (Olsson et al. 2022, "In-context learning and induction
heads"). Such heads appear suddenly, in 1,000 steps of 24 recalls, and in a mixture with all worlds' texts not at all in
as many:

* **recalls**: facts about made-up names, `NAME: VALUE`, and questions for them, as observations and replies;
* **repetitions**: a random span of tokens, then pieces of it among other random tokens. Of each piece all tokens but
  the first are trained on, since nothing predicts where a piece begins. What lies between pieces has a random length:
  where a span comes again at a fixed distance, a policy learns the distance, and nothing of copying.

Every draw is a function of the seed and the number of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise import seeding
from turnwise.data.arrays import TokenSequence
from turnwise.data.conversations import Conversation, ConversationExchange

VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
LETTERS = VOWELS + CONSONANTS
DIGITS = "0123456789"


LONGEST_GAP = 6
"""Most other tokens between two pieces of a repetition."""


def repetition(seed: int, number: int, tokens: Sequence[int], longest: int, length: int) -> TokenSequence:
    """A span of 4 to `longest` different random `tokens`, then pieces of it among others, in all `length` tokens."""
    draw = seeding.generator(seed, "repetition", number)
    span = draw.choice(tokens, size=draw.integers(4, longest + 1), replace=False)
    parts, trained = [span], [np.zeros(len(span), dtype=bool)]
    while sum(map(len, parts)) < length:
        gap = draw.choice(tokens, size=draw.integers(0, LONGEST_GAP + 1))
        first = draw.integers(0, len(span) - 1)
        piece = span[first : draw.integers(first + 2, len(span) + 1)]
        parts += [gap, piece]
        trained += [np.zeros(len(gap), dtype=bool), np.arange(len(piece)) > 0]
    return _sequence(np.concatenate(parts)[:length], np.concatenate(trained)[:length])


def _sequence(tokens: NDArray[Any], trained: NDArray[np.bool_]) -> TokenSequence:
    turn_of_token = np.where(trained, 0, -1)
    return TokenSequence(tuple(tokens.tolist()), tuple(turn_of_token.tolist()), (0.0,) * len(tokens))


def recall(seed: int, number: int, *, facts: int, longest_name: int, write: Callable[[str, str], str]) -> Conversation:
    """Facts `NAME: VALUE` about 2 to `facts` made-up names, and one to three questions for their values, a turn each.

    `write(name, value)` is the reply to the question for a name.
    """
    draw = seeding.generator(seed, "recall", number)
    count = int(draw.integers(2, facts + 1))
    names = _distinct(draw, count, longest_name)
    values = [made_up_name(draw, longest_name) for _ in names]
    facts_text = "\n".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
    exchanges = []
    for turn, place in enumerate(draw.integers(count, size=draw.integers(1, 4)).tolist()):
        question = f"{names[place]}?"
        observation = question if turn else f"{facts_text}\n{question}"
        exchanges.append(ConversationExchange(observation, write(names[place], values[place])))
    return Conversation(None, tuple(exchanges))


def made_up_name(draw: np.random.Generator, longest: int) -> str:
    """A name of 2 to `longest` characters: syllables, arbitrary letters or digits; one in four has two words."""
    words = [_word(draw, longest)]
    if longest >= 8 and draw.random() < 0.25:
        words = [word[: (longest - 1) // 2] for word in (*words, _word(draw, longest))]
    return " ".join(words)


def _word(draw: np.random.Generator, longest: int) -> str:
    length = int(draw.integers(2, longest + 1))
    kind = draw.random()
    if kind < 0.15:
        return "".join(draw.choice(list(DIGITS), size=length))
    if kind < 0.4:
        return "".join(draw.choice(list(LETTERS), size=length))
    alphabets = [CONSONANTS, VOWELS] if draw.random() < 0.5 else [VOWELS, CONSONANTS]
    word = "".join(str(draw.choice(list(alphabets[place % 2]))) for place in range(length))
    return word.capitalize() if draw.random() < 0.5 else word


def _distinct(draw: np.random.Generator, count: int, longest: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names[made_up_name(draw, longest)] = None
    return list(names)
