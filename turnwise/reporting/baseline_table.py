"""The recorded scores of every world's baseline policies: JSON with one line for each world, setting and policy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from turnwise.checking.baselines import Score

RECORD_FILE = "baselines.json"


@dataclass(frozen=True)
class BaselineRow:
    """The record of one baseline policy in one world and setting."""

    world: str
    version: str
    setting: str
    """A preset's name; empty: the world's defaults."""
    code: str
    """Digest of the code that computed the line; if it differs from today's, the line is out of date."""
    uniform: str
    """What the world's random policy draws from uniformly, in the world's own words."""
    score: Score

    @property
    def key(self) -> tuple[str, str, str]:
        """(world, setting, policy); the record has one line for each."""
        return (self.world, self.setting, self.score.baseline)


def recorded_baselines(folder: Path) -> list[BaselineRow]:
    """The recorded lines of the baseline policies in a folder; empty if there is no record."""
    path = folder / RECORD_FILE
    return read_lines(path.read_text(encoding="utf-8")) if path.is_file() else []


def read_lines(text: str) -> list[BaselineRow]:
    """The record that `json_lines` wrote. Raises pydantic's ValidationError for other text."""
    return TypeAdapter(list[BaselineRow]).validate_json(text)


def json_lines(record: Sequence[Any]) -> str:
    """Data classes as a JSON list with one line for each, so that a diff shows only the records that changed."""
    rows = ",\n".join(json.dumps(dataclasses.asdict(line), ensure_ascii=False, allow_nan=False) for line in record)
    return f"[\n{rows}\n]\n"
