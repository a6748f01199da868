"""The candidates of a sweep: which values of which keys are tried, over a grid or drawn at random.

    optimization.learning_rate: [0.0001, 0.0003, 0.001]              a list: each value
    optimization.clip_high: { low: 0.1, high: 0.5 }                  a range, for random draws
    optimization.learning_rate: { low: 1e-5, high: 1e-3, scale: log }

A grid takes every combination of the lists. Random draws take one value of each list or range for each candidate: where
few of several keys matter, they try more values of those that do (Bergstra & Bengio 2012, "Random search for
hyper-parameter optimization").
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from turnwise import seeding
from turnwise.config.messages import explain
from turnwise.config.overlays import parse_setting, read_yaml
from turnwise.config.quantities import NAME
from turnwise.config.schema import Section
from turnwise.errors import ConfigurationError

MOST_CANDIDATES = 1000
VALUES_RULE = "must be a list of values, or low and high"
DIGITS = 3
"""Significant digits of a value that is drawn from a range: its name stays short, and it can be typed again."""


class Range(Section):
    """Numbers from `low` to `high`, drawn uniformly, or uniformly in their logarithm."""

    low: float
    high: float
    scale: Literal["linear", "log"] = Field(default="linear")

    def require_sense(self, key: str) -> None:
        """Raise ConfigurationError for an empty range, and for a logarithm of what is not positive."""
        if not -math.inf < self.low < self.high < math.inf:
            raise ConfigurationError(
                f"{key}: low must be below high, both finite; found {self.low} and {self.high}", "TW-reversed-bounds"
            )
        if self.scale == "log" and self.low <= 0:
            raise ConfigurationError(f"{key}: low must be above 0 for scale: log; found {self.low}", "TW-option-range")

    def draw(self, key: str, place: int) -> float:
        """The value of one candidate: a function of the key and the candidate's place alone."""
        share = float(seeding.generator(0, "sweep", key, place).random())
        if self.scale == "log":
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return min(self.high, max(self.low, float(f"{value:.{DIGITS}g}")))


Choices = list[Any] | Range
"""What is tried of one key."""


@dataclass(frozen=True)
class Candidate:
    """One combination of values."""

    name: str
    """Its name as a variant, such as `learning_rate-0.0003`."""
    values: Mapping[str, Any]
    """By dotted key."""


def split_settings(settings: Sequence[str]) -> tuple[list[str], dict[str, Choices]]:
    """Settings with one value, which hold for all candidates, and those with several: `key=0.1,0.2,0.3`.

    A comma within brackets, braces or quotes does not separate values. Raises ConfigurationError for what is no
    setting.
    """
    fixed_settings: list[str] = []
    choices: dict[str, Choices] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        parts = _parts(text) if equals else [text]
        if len(parts) == 1:
            fixed_settings.append(setting)
        else:
            choices[key] = [parse_setting(f"{key}={part}")[1] for part in parts]
    return fixed_settings, choices


def read_choices(path: Path) -> dict[str, Choices]:
    """The keys of a file and what is tried of each. Raises ConfigurationError."""
    document = read_yaml(path)
    if not isinstance(document, Mapping) or not document:
        raise ConfigurationError(
            f"{path}: must hold a mapping of keys to lists or ranges; found {document!r}", "TW-not-a-section"
        )
    choices: dict[str, Choices] = {}
    for key, choice in document.items():
        if isinstance(choice, Mapping):
            try:
                choices[key] = Range.model_validate(choice)
            except ValidationError as error:
                raise ConfigurationError(f"{path}: {key}: {explain(error, Range)}") from None
        elif isinstance(choice, list) and choice:
            choices[key] = list(choice)
        else:
            raise ConfigurationError(f"{path}: {key} {VALUES_RULE}; found {choice!r}", "TW-sweep-values")
    return choices


def candidates(choices: Mapping[str, Choices], draws: int | None = None) -> list[Candidate]:
    """Every combination of the values, or so many random `draws`; a combination that is drawn again is left out.

    Raises ConfigurationError without values or draws, for a range in a grid, and for more than `MOST_CANDIDATES`.
    """
    if not choices:
        raise ConfigurationError(
            "a sweep must have a key with several values, such as -s optimization.learning_rate=1e-4,3e-4; found none",
            "TW-empty-sweep",
        )
    for key, choice in choices.items():
        if isinstance(choice, Range):
            choice.require_sense(key)
            if draws is None:
                raise ConfigurationError(
                    f"{key}: a range must be drawn from: give --random N, or list its values", "TW-sweep-undrawn"
                )
        elif not choice:
            raise ConfigurationError(f"{key} {VALUES_RULE}; found {choice!r}", "TW-sweep-values")
    if draws is not None and draws < 1:
        raise ConfigurationError(f"random draws must be at least 1; found {draws}", "TW-option-range")
    lists = [each for each in choices.values() if isinstance(each, list)]  # in a grid all are
    number = math.prod(map(len, lists)) if draws is None else draws
    if number > MOST_CANDIDATES:
        raise ConfigurationError(
            f"a sweep must have at most {MOST_CANDIDATES} candidates; found {number}", "TW-large-sweep"
        )
    if draws is None:
        combinations = [dict(zip(choices, each, strict=True)) for each in itertools.product(*lists)]
    else:
        combinations = [{key: _draw(key, choice, place) for key, choice in choices.items()} for place in range(draws)]
    distinct = {repr(each): each for each in combinations}
    return _name_candidates(list(distinct.values()))


def _draw(key: str, choices: Choices, place: int) -> Any:
    if isinstance(choices, Range):
        return choices.draw(key, place)
    return choices[int(seeding.generator(0, "sweep", key, place).integers(len(choices)))]


def _name_candidates(combinations: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """Candidates with names that a variant may have, and that differ."""
    short = {key: key.rpartition(".")[2] for key in combinations[0]}
    if len(set(short.values())) < len(short):
        short = {key: key for key in short}
    names = ["_".join(f"{short[key]}-{_text(value)}" for key, value in each.items()) for each in combinations]
    if len(set(names)) < len(names) or not all(NAME.fullmatch(name) for name in names):
        names = [f"candidate-{place + 1}" for place in range(len(names))]
    return [Candidate(name, values) for name, values in zip(names, combinations, strict=True)]


def _text(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", str(value)).strip("-") or "none"


def _parts(text: str) -> list[str]:
    """The text cut at its commas outside of brackets, braces and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts
