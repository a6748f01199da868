"""When two short phrases count as the same: the token-set ratio of `thefuzz`, by which WebShop compares attributes.

Let s be the words that both phrases have, x and y the remaining words of each, all sorted and joined by spaces. Then

    ratio = max( r(s + x, s + y), r(s, s + x), r(s, s + y) ),    r(u, v) = 100 * (1 - d(u, v) / (|u| + |v|)),

where d counts the characters to insert and delete to turn u into v; s + x stands for s, a space and x. When one phrase
has all words of the other the ratio is 100; when they share none, only the first term counts. In the first term d is
taken between x and y alone, as rapidfuzz does: the common s costs nothing.
"""

from __future__ import annotations

import functools

from envs.webshop.words import words

THRESHOLD = 85
"""WebShop counts a ratio above this as the same. Ratios are rounded to whole numbers first, as `thefuzz` does."""


@functools.lru_cache(maxsize=1 << 18)
def alike(first: str, second: str) -> bool:
    """Whether two phrases count as the same."""
    return token_set_ratio(first, second) > THRESHOLD


def token_set_ratio(first: str, second: str) -> int:
    """Similarity from 0, no common characters, to 100, where one phrase has all words of the other."""
    one, other = dict.fromkeys(words(first)), dict.fromkeys(words(second))
    if not one or not other:
        return 0
    common = " ".join(sorted(word for word in one if word in other))
    rest = " ".join(sorted(word for word in one if word not in other))
    other_rest = " ".join(sorted(word for word in other if word not in one))
    if common and (not rest or not other_rest):
        return 100
    gap = 1 if common else 0
    length, other_length = len(common) + gap + len(rest), len(common) + gap + len(other_rest)
    ratios = [_ratio(_changes(rest, other_rest), length + other_length)]
    if common:
        ratios.append(_ratio(gap + len(rest), len(common) + length))
        ratios.append(_ratio(gap + len(other_rest), len(common) + other_length))
    return round(100 * max(ratios))


def _ratio(changes: int, characters: int) -> float:
    return 1 - changes / characters


def _changes(first: str, second: str) -> int:
    """Number of characters to insert and delete: all that are not in the longest common subsequence."""
    longest = [0] * (len(second) + 1)
    for letter in first:
        diagonal = 0
        for place, other in enumerate(second, start=1):
            above = longest[place]
            longest[place] = diagonal + 1 if letter == other else max(above, longest[place - 1])
            diagonal = above
    return len(first) + len(second) - 2 * longest[-1]
