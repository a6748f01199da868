"""Canonical JSON of a value, and the digest of that text."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """The canonical JSON text of a value: keys sorted, no spaces, no ASCII escapes.

    Raises:
        ValueError: the value holds a number that is not finite.
        TypeError: the value holds something that JSON has no form for.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of(value: Any) -> str:
    """The digest of a JSON value: the first 32 hexadecimal characters (128 bits) of the SHA-256 of its canonical text.

    Raises as `canonical_json` does.
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:32]
