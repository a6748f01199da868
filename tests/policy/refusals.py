"""What a user reads where a section refuses its values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from turnwise.config.messages import explain
from turnwise.config.schema import Section


def refusal(section: type[Section], values: dict[str, Any]) -> str:
    """The message for values that must be refused."""
    with pytest.raises(ValidationError) as caught:
        section(**values)
    return explain(caught.value, section)
