"""The token heat map: a reply token by token, coloured by advantage and underlined by how unlikely the token was.

Blue is above zero, orange below, stronger where larger; all kinds of colour vision can tell the two apart. Colours and
underlines come in a few steps, each a CSS class, so that a page with many thousand tokens stays small.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.reporting.formatting import signed
from turnwise.results.report_data import Sample

ABOVE, BELOW = (0, 114, 178), (213, 94, 0)
"""Colours of positive and negative advantages: red, green, blue, each from 0 to 255."""
STEPS = 8
STRONGEST = 0.5
"""Opacity of the last step (0 to 1); text stays legible on it."""
STRONGEST_SHADE = 0.42
"""Opacity behind the advantage of a turn that is the largest of the page (0 to 1)."""
RARE = (0.7, 2.3, 4.6)
"""Thresholds of a token's negative log-probability in nats: about one in two, one in ten, one in a hundred."""
GREYS = ("#b9c0c6", "#6a7178", "#22262b")
"""Colours of the line under a token, for each step of `RARE`."""


@dataclass(frozen=True)
class HeatToken:
    """One reply token of a page's heat map."""

    text: str
    classes: str
    """Its CSS classes: `above1` to `above8` or `below1` to `below8`, and `rare1` to `rare3`; may be empty."""
    title: str
    """Advantage and log-probability as text."""


def step(value: float, largest: float) -> int:
    """The colour step of an advantage, from -STEPS to STEPS; 0 only for zero. `largest` is the end of the scale."""
    if value == 0.0 or largest == 0.0:
        return 0
    size = min(STEPS, max(1, round(STEPS * abs(value) / largest)))
    return size if value > 0 else -size


def shade(value: float, largest: float) -> str:
    """The colour behind a turn's advantage, as CSS. `largest` is the end of the scale."""
    red, green, blue = ABOVE if value >= 0 else BELOW
    opacity = STRONGEST_SHADE * abs(value) / largest if largest else 0.0
    return f"rgba({red}, {green}, {blue}, {opacity:.3f})"


def rarity(log_probability: float) -> int:
    """How unlikely a token was: from 0 (more likely than not) to 3 (one in a hundred or rarer)."""
    return bisect.bisect_right(RARE, -log_probability)


def largest_advantage(samples: Sequence[Sample]) -> float:
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
    turn_advantage = None if sample.advantages is None else sample.advantages[place]
    return [turn_advantage] * len(sample.trajectory.turns[place].reply_tokens)


def heat_tokens(sample: Sample, place: int, largest: float) -> list[HeatToken]:
    """The reply of turn `place` for the page's heat map; its token texts (`Sample.spelling`) must be known."""
    assert sample.spelling is not None, "a heat map shows the texts of tokens"
    tokens = []
    log_probabilities = sample.trajectory.turns[place].log_probabilities
    for text, advantage, log_probability in zip(
        sample.spelling[place], token_advantages(sample, place), log_probabilities, strict=True
    ):
        size, rare = 0 if advantage is None else step(advantage, largest), rarity(log_probability)
        tint = f"{'above' if size > 0 else 'below'}{abs(size)}" if size else ""
        classes = " ".join(name for name in (tint, f"rare{rare}" if rare else "") if name)
        title = f"log p {signed(log_probability, 2)}"
        if advantage is not None:
            title = f"advantage {signed(advantage, 2)}, {title}"
        tokens.append(HeatToken(text, classes, title))
    return tokens
