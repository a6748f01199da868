"""Types of the numbers and names in a configuration, each with its bounds.

The bounds are far beyond what papers and machines of today need, so that they stop no experiment: a value beyond them
is a typing error, and would fill a disk, hang a machine or overflow before anybody noticed. No number may be infinite
or NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from turnwise.config.messages import requirement
from turnwise.errors import ConfigurationError

Count = Annotated[int, Field(ge=1, le=1_000_000)]
"""Iterations, steps, turns, tasks: a million iterations is years of training, a million tasks half a gigabyte."""
Amount = Annotated[int, Field(ge=1, le=10**15)]
"""Tokens or steps of a whole run: the largest models are trained on some 10^13."""
Whole = Annotated[int, Field(ge=0, le=1_000_000)]
"""A count that may be 0."""
Batch = Annotated[int, Field(ge=1, le=10_000)]
"""Episodes or sequences processed at once, or passes over them. Bounded since each episode holds an environment."""
Repeats = Annotated[int, Field(ge=0, le=1000)]
"""How often something is retried, or recorded."""
Tokens = Annotated[int, Field(ge=1, le=2**24)]
"""A number of tokens; the longest published contexts have ten million."""
Threads = Annotated[int, Field(ge=1, le=1024)]
"""CPU threads; the bound is more than any machine has processors."""
Processes = Annotated[int, Field(ge=1, le=1024)]
"""Processes of one machine; the bound is more than any machine has processors."""
Layers = Annotated[int, Field(ge=1, le=1000)]
"""Layers of a model, or attention heads of a layer; the largest published models have less than 200."""
Width = Annotated[int, Field(ge=1, le=1_000_000)]
"""The width of a layer, or the size of a vocabulary; the largest published models have layers of less than 100,000."""
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A seed. Not negative: in other tools -1 means a new seed every time, which is not possible here."""

Number = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
"""A reward's weight or a monitor's bound. Sums of larger numbers would exceed the resolution of float32."""
Positive = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-12, le=10.0, allow_inf_nan=False)]
"""AdamW's learning rate: about how far a weight moves per step; below 1e-12 no float32 weight moves."""
Betas = Annotated[
    tuple[
        Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)],
        Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)],
    ],
    Field(strict=False),
]
"""AdamW's decay of its two running means, of the gradient and of its square, per step."""
Temperature = Annotated[float, Field(ge=0.01, le=100.0, allow_inf_nan=False)]
"""The divisor of logits in sampling. Beyond the bounds sampling is greedy or uniform and log-probabilities overflow."""
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0, allow_inf_nan=False)]
"""A duration in seconds, at most a day."""


def because(reason: str) -> WrapValidator:
    """An annotation that adds a reason to the refusal of a value: `must be above 1: at 1 nothing would count`."""

    def validate(value: Any, bounds: ValidatorFunctionWrapHandler) -> Any:
        try:
            return bounds(value)
        except ValidationError as error:
            raise ConfigurationError(f"{requirement(error.errors()[0]).message}: {reason}", "TW-option-range") from None

    return WrapValidator(validate)


TrainingTemperature = Annotated[Temperature, because("greedy replies have no policy gradient")]
"""The temperature of replies that are trained on."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
NAME_RULE = (
    "must be letters, digits and any of _ - . alone, begin with none of - and ., and have at most 200 characters, as "
    "MLflow and file systems take it"
)


def _require_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ConfigurationError(f"a name {NAME_RULE}", "TW-name-form")
    return name


Name = Annotated[str, AfterValidator(_require_name)]
"""A name that serves both as a folder's name and in MLflow."""


def _require_finite(options: dict[str, Any]) -> dict[str, Any]:
    for path, value in _values(options):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigurationError(f"{path} must be a finite number; found {value}", "TW-option-range")
    return options


def _values(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every value of nested mappings and lists, with its dotted path."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    return [(path, value), *(each for key, below in inner for each in _values(below, f"{path}.{key}".lstrip(".")))]


Options = Annotated[dict[str, Any], AfterValidator(_require_finite)]
"""Keyword options of a rule or a world, which checks them itself; here only that no number is infinite or NaN."""
