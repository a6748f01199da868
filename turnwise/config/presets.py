"""Presets for variants: a published method, and each of its components alone, as changes to an experiment.

    variants:
      starpo-s: { preset: starpo-s }
      wider:    { preset: starpo-s, selection: { options: { share: 0.5 } } }

StarPO-S (RAGEN, arXiv 2504.20073, section 4.2) is StarPO with three changes: training only on the quarter to half of
the groups whose rewards vary most; no KL penalty towards the warm start; and clip-higher, i.e. a ratio clipped at
1 - 0.2 and 1 + 0.28. The controls are each change alone, and a random selection of equally many groups.

Differs from the paper: there a mini-batch has a fixed size, so that keeping a quarter of the groups leaves a quarter of
the optimizer steps. Here `optimization.mini_batches` is the number of steps, so that all variants are compared at equal
numbers of updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.errors import ConfigurationError
from turnwise.suggestions import nearest

FILTER = {"selection": {"rule": "uncertainty", "options": {"share": 0.25}}}
AT_RANDOM = {"selection": {"rule": "random", "options": {"share": 0.25}}}
NO_PRICE = {"optimization": {"reference": None}}
CLIP_HIGHER = {"optimization": {"loss": "clipped", "clip_low": 0.2, "clip_high": 0.28}}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "starpo-s": {**FILTER, "optimization": {**NO_PRICE["optimization"], **CLIP_HIGHER["optimization"]}},
    "starpo-s-filter": FILTER,
    "starpo-s-no-kl": NO_PRICE,
    "starpo-s-clip-higher": CLIP_HIGHER,
    "starpo-s-random-filter": AT_RANDOM,
}
"""The changes of each preset, by its name."""

SHARES = (0.25, 0.5)
"""The smallest and the largest share of groups kept in the paper; a variant may set any share in between."""


def preset_and_own(changes: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The changes of a variant's preset ({} where it names none) and the variant's own, which are to override them.

    Raises:
        ConfigurationError: the preset is unknown, or the variant's own changes contradict it.
    """
    own = {key: value for key, value in changes.items() if key != "preset"}
    if "preset" not in changes:
        return {}, own
    name = changes["preset"]
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigurationError(
            f"preset: {name!r} is not a preset; {nearest(str(name).lower(), PRESETS)}", "TW-unknown-preset"
        )
    _require_agreement(name, PRESETS[name], own)
    return PRESETS[name], own


def _require_agreement(
    name: str, preset: Mapping[str, Any], own: Mapping[str, Any], within: tuple[str, ...] = ()
) -> None:
    """Raise ConfigurationError where a variant sets a key to another value than its preset; shares may vary."""
    for part in (part for part in preset if part in own):
        key, value, own_value = ".".join((*within, part)), preset[part], own[part]
        if isinstance(value, Mapping):
            if isinstance(own_value, Mapping):
                _require_agreement(name, value, own_value, (*within, part))
        elif part == "share":
            if not isinstance(own_value, int | float) or not SHARES[0] <= own_value <= SHARES[1]:
                raise ConfigurationError(
                    f"the preset {name!r} keeps from {SHARES[0]:g} to {SHARES[1]:g} of the groups; found {key}: "
                    f"{own_value!r}",
                    "TW-option-range",
                )
        elif own_value != value:
            raise ConfigurationError(
                f"the preset {name!r} sets {key}: {value!r}; found {own_value!r}: leave one of the two out",
                "TW-contradicted-preset",
            )
