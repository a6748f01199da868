"""Settings for a pretrained model where `params.yaml` says `suggested` in place of a value.

    learning rate of reinforcement      1e-5 (135 M / P)^0.7       all weights; ten times that with an adapter
    learning rate of the warm start     1e-4 (135 M / P)^0.7
    demonstrations, batch, steps        64 in batches of 8, each seen about twice: 16 steps, of which 4 warm up
    precision                           bfloat16 on a card and on a processor with instructions for it, else float32
    largest mismatch, nats              0.1 in bfloat16: replies of 3 nats a token are 0.045 apart; 0.01 in float32

with P the parameters; rates are rounded to one digit. The rates at 135 million are those with which SmolLM2 learned
(docs/language-model.md), the exponent leads from there to 1e-6 at 4 billion, between what RAGEN and MT-GRPO published
for models of 0.5 and 7 billion. Nothing is suggested below 50 million parameters: such a policy must first learn to
read, which takes hundreds of steps and not sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from turnwise.config.schema import Policy
from turnwise.errors import ConfigurationError
from turnwise.policy.dimensions import dimensions_of
from turnwise.policy.sizes import count
from turnwise.store.run_environment import processor_computes_bfloat16

Suggestion = float | str

SUGGESTED = "suggested"
SMALLEST = 50_000_000
"""Parameters of the smallest model that anything is suggested for."""
MEASURED = 135_000_000
ADAPTER_FACTOR = 10.0
DEMONSTRATIONS, BATCH = 64, 8


def rate_of_reinforcement(parameters: int) -> float:
    """AdamW's learning rate for all weights of a model with so many parameters."""
    return _one_digit(1e-5 * (MEASURED / parameters) ** 0.7)


@dataclass(frozen=True)
class Trained:
    """What suggestions follow from."""

    parameters: int
    adapter: bool
    precision: str


SETTINGS: Mapping[str, Callable[[Trained], Suggestion]] = {
    "compute.precision": lambda model: model.precision,
    "optimization.learning_rate": lambda model: _one_digit(
        rate_of_reinforcement(model.parameters) * (ADAPTER_FACTOR if model.adapter else 1.0)
    ),
    "optimization.maximum_mismatch": lambda model: 0.1 if model.precision == "bfloat16" else 0.01,
    "warm_start.learning_rate": lambda model: _one_digit(10 * rate_of_reinforcement(model.parameters)),
    "warm_start.final_learning_rate": lambda model: _one_digit(2 * rate_of_reinforcement(model.parameters)),
    "warm_start.maximum_steps": lambda _: 2 * DEMONSTRATIONS // BATCH,
    "warm_start.learning_rate_warmup": lambda _: 4,
    "warm_start.check_every": lambda _: DEMONSTRATIONS // BATCH,
    "warm_start.batch": lambda _: BATCH,
    "data.demonstrations": lambda _: DEMONSTRATIONS,
}
"""By key: the suggestion."""


def with_suggestions(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Suggestion]]:
    """Nested values of a configuration with each `suggested` replaced, and what was suggested, by dotted key.

    Raises ConfigurationError for a key or a model that nothing is suggested for.
    """
    changed = {name: dict(section) if isinstance(section, Mapping) else section for name, section in values.items()}
    keys = [
        f"{name}.{key}"
        for name, section in changed.items()
        if isinstance(section, dict) and name not in ("world", "variants")
        for key, value in section.items()
        if value == SUGGESTED
    ]
    if not keys:
        return changed, {}
    if strangers := [key for key in keys if key not in SETTINGS]:
        raise ConfigurationError(
            f"{strangers[0]}: nothing is suggested for this key, but for {', '.join(SETTINGS)}: write a value",
            "TW-nothing-suggested",
        )
    compute = values.get("compute") or {}
    precision = compute.get("precision", "float32")
    if precision == SUGGESTED:
        rounds = compute.get("device") == "cuda" or processor_computes_bfloat16()
        precision = "bfloat16" if rounds else "float32"
    adapter = bool((values.get("optimization") or {}).get("adapter"))
    model = Trained(_parameters(values.get("policy"), keys[0]), adapter, precision)
    suggested = {key: SETTINGS[key](model) for key in keys}
    for key, value in suggested.items():
        name, _, last = key.partition(".")
        changed[name][last] = value
    return changed, suggested


def _parameters(section: Any, key: str) -> int:
    try:
        policy = Policy.model_validate(section)
    except ValidationError:
        raise ConfigurationError(
            f"{key}: a suggestion needs a valid section policy; found {section!r}", "TW-nothing-suggested"
        ) from None
    dimensions = dimensions_of(policy)
    if dimensions is None:
        raise ConfigurationError(
            f"{key}: suggestions follow from the model's size, which is not known before the configuration of "
            f"{policy.model} is on this machine: hf download {policy.model} config.json, or write a value",
            "TW-nothing-suggested",
        )
    parameters = count(dimensions.shapes)
    if parameters < SMALLEST:
        raise ConfigurationError(
            f"{key}: suggestions are for pretrained models of at least {SMALLEST // 10**6} million parameters; found "
            f"{policy.model} with {parameters / 1e6:.1f} million: write a value",
            "TW-nothing-suggested",
        )
    return parameters


def _one_digit(rate: float) -> float:
    return float(f"{rate:.0e}")
