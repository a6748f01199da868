"""The one JSON text of a value, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces. Raises ValueError for what is not finite or not JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """A name for a JSON value: the first 32 hexadecimal characters of the SHA-256 of its canonical text."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:32]
