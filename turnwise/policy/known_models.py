"""Public facts of published models, so that a plan with disk and memory is printed before any of their files is here.

They are in `known_models.json`, the one place for them: the sizes that a model's `config.json` names, under the names
of the repositories that have them, with the number of parameters that is published of it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.policy.configured_shapes import Dimensions, configured_dimensions

FACTS = Path(__file__).with_name("known_models.json")


@cache
def facts() -> dict[str, Any]:
    """The content of `known_models.json`."""
    found: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return found


def known_configuration(model: str) -> dict[str, Any]:
    """What is known of the `config.json` of a published model, by its name on the hub; empty where nothing is."""
    found = [entry["config"] for entry in facts()["configurations"] if model in entry["models"]]
    return dict(found[0]) if found else {}


def known_dimensions(model: str) -> Dimensions | None:
    """The dimensions of a published model by its name on the hub; None for one that is not among the known ones."""
    return configured_dimensions(known_configuration(model))
