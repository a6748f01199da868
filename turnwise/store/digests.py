"""Digests: of a JSON value, by its canonical text, and of a file, by its bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
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


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
