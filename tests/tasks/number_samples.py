"""An artifact that holds a number, for stages that only tests have."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

from turnwise.store import Reference, default_store


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True)

    factor: int = 2


def write_number(value: float) -> Reference:
    with default_store().write("number") as draft:
        (draft.folder / "number.json").write_text(json.dumps(float(value)))
        draft.metrics["value"] = value
    return draft.reference
