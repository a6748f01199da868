"""What one of our modules sees of a library, in place of what everybody sees.

`monkeypatch.setattr(time, "sleep", ...)` would hold for every thread of the process, those of Prefect and of MLflow
among them. Here the name in one module is replaced: `let_see(monkeypatch, place, "time", sleep=pauses.append)`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


class OwnView:
    """A library with other functions in place of some of its own."""

    def __init__(self, library: Any, replaced: dict[str, Any]) -> None:
        self._library = library
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def let_see(monkeypatch: pytest.MonkeyPatch, module: ModuleType, library: str, **replaced: Any) -> None:
    """Let a module that has imported a library by this name see these attributes in place of the library's own."""
    monkeypatch.setattr(module, library, OwnView(getattr(module, library), replaced))
