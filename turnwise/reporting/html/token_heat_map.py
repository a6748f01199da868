"""The heat line: a reply token by token, coloured by its advantage and underlined by how unlikely it was.

Blue is above zero, orange below, stronger where larger: two ends of one scale that all kinds of colour vision tell
apart. Both are steps of a scale and not shades of their own, so that a page with many thousand tokens stays small.
"""

from __future__ import annotations

import bisect
import itertools

from turnwise.reporting.data.report_data import Sample
from turnwise.reporting.formatting import signed
from turnwise.reporting.html.markup import Markup, tag

ABOVE, BELOW = (0, 114, 178), (213, 94, 0)
"""Red, green, blue."""
STEPS = 8
STRONGEST = 0.5
"""The opacity of the last step: the text stays legible on it."""
RARE = (0.7, 2.3, 4.6)
"""Nats at which a token is called rarer: about one in two, one in ten, one in a hundred."""
GREYS = ("#b9c0c6", "#6a7178", "#22262b")
"""Of the line under a token, for each step of `RARE`."""


def step(value: float, largest: float) -> int:
    """The step of an advantage, from -STEPS to STEPS; 0 for nothing but zero. `largest` is the scale's end."""
    if value == 0.0 or largest == 0.0:
        return 0
    size = min(STEPS, max(1, round(STEPS * abs(value) / largest)))
    return size if value > 0 else -size


def rarity(log_probability: float) -> int:
    """How unlikely a token was: 0 for one that was more likely than not, to 3 for one in a hundred."""
    return bisect.bisect_right(RARE, -log_probability)


def largest_advantage(samples: list[Sample]) -> float:
    """The end of the scale that these samples share."""
    turns = (abs(value) for sample in samples for value in sample.advantages or ())
    tokens = (abs(value) for sample in samples for values in sample.token_advantages or () for value in values)
    return max(itertools.chain(turns, tokens), default=0.0)


def token_advantages(sample: Sample, place: int) -> list[float | None]:
    """The advantage of each reply token of one turn: its own where the estimator gave it one, else its turn's."""
    if sample.token_advantages is not None:
        return list(sample.token_advantages[place])
    of_turn = None if sample.advantages is None else sample.advantages[place]
    return [of_turn] * len(sample.trajectory.turns[place].reply_tokens)


def heat_line(sample: Sample, place: int, largest: float) -> Markup:
    """One turn's reply as the page shows it; nothing where the tokens' spelling is not known."""
    if sample.spelling is None or not sample.spelling[place]:
        return Markup()
    turn = sample.trajectory.turns[place]
    tokens = zip(sample.spelling[place], token_advantages(sample, place), turn.log_probabilities, strict=True)
    return tag("p", *(_token(*token, largest) for token in tokens), class_="heat")


def _token(text: str, advantage: float | None, log_probability: float, largest: float) -> Markup:
    size = 0 if advantage is None else step(advantage, largest)
    tint = f"{'above' if size > 0 else 'below'}{abs(size)}" if size else ""
    rare = rarity(log_probability)
    classes = " ".join(name for name in (tint, f"rare{rare}" if rare else "") if name)
    said = f"log p {signed(log_probability, 2)}"
    title = said if advantage is None else f"advantage {signed(advantage, 2)}, {said}"
    return tag("span", text, class_=classes or None, title=title)


def _tint(colour: tuple[int, int, int], size: int) -> str:
    return f"rgba({colour[0]}, {colour[1]}, {colour[2]}, {STRONGEST * size / STEPS:.3f})"


STYLE = "\n".join(
    [
        ".heat { font: 13px/1.9 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }",
        ".heat span { border-bottom: 2px solid transparent; }",
        *(
            f".heat .{name}{size} {{ background: {_tint(colour, size)}; }}"
            for name, colour in (("above", ABOVE), ("below", BELOW))
            for size in range(1, STEPS + 1)
        ),
        *(f".heat .rare{place} {{ border-bottom-color: {grey}; }}" for place, grey in enumerate(GREYS, start=1)),
    ]
)
