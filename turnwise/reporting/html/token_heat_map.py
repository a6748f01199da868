"""The token heat map: a reply token by token, coloured by advantage and underlined by how unlikely the token was.

Blue is above zero, orange below, stronger where larger; all kinds of colour vision can tell the two apart. Colours and
underlines come in a few steps, each a CSS class, so that a page with many thousand tokens stays small.
"""

from __future__ import annotations

import bisect
import itertools

from turnwise.reporting.data.report_data import Sample
from turnwise.reporting.formatting import signed
from turnwise.reporting.html.markup import Markup, tag

ABOVE, BELOW = (0, 114, 178), (213, 94, 0)
"""Colours of positive and negative advantages: red, green, blue, each from 0 to 255."""
STEPS = 8
STRONGEST = 0.5
"""Opacity of the last step (0 to 1); text stays legible on it."""
RARE = (0.7, 2.3, 4.6)
"""Thresholds of a token's negative log-probability in nats: about one in two, one in ten, one in a hundred."""
GREYS = ("#b9c0c6", "#6a7178", "#22262b")
"""Colours of the line under a token, for each step of `RARE`."""


def step(value: float, largest: float) -> int:
    """The colour step of an advantage, from -STEPS to STEPS; 0 only for zero. `largest` is the end of the scale."""
    if value == 0.0 or largest == 0.0:
        return 0
    size = min(STEPS, max(1, round(STEPS * abs(value) / largest)))
    return size if value > 0 else -size


def rarity(log_probability: float) -> int:
    """How unlikely a token was: from 0 (more likely than not) to 3 (one in a hundred or rarer)."""
    return bisect.bisect_right(RARE, -log_probability)


def largest_advantage(samples: list[Sample]) -> float:
    """The largest absolute advantage in the samples: the end of their common colour scale."""
    turns = (abs(value) for sample in samples for value in sample.advantages or ())
    tokens = (abs(value) for sample in samples for values in sample.token_advantages or () for value in values)
    return max(itertools.chain(turns, tokens), default=0.0)


def token_advantages(sample: Sample, place: int) -> list[float | None]:
    """The advantage of each reply token of turn `place`: the token's own if the estimator gives one, else its turn's.

    None for each token of a trajectory that was not trained on.
    """
    if sample.token_advantages is not None:
        return list(sample.token_advantages[place])
    of_turn = None if sample.advantages is None else sample.advantages[place]
    return [of_turn] * len(sample.trajectory.turns[place].reply_tokens)


def heat_line(sample: Sample, place: int, largest: float) -> Markup:
    """The reply of turn `place` as a coloured line; empty if the token texts are unknown."""
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
