"""Names, parameters and metrics in the forms and sizes that MLflow accepts.

MLflow refuses most punctuation, names that a file system would read as another name (`a//b`, `../a`), and those of more
than 250 characters. A world may call its metrics as it likes, so a name is written so that MLflow takes it:

    pass@1      pass_at_1
    acc=1       acc_eq_1
    50%         50_percent_
    time (s)    time _x28_s_x29_      any other character by its code point, in hexadecimal
    a//..       a/_x_/_x2e_.

A name that MLflow takes as it is stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from turnwise.config.nested import leaves

METRICS_PER_BATCH = 1000
PARAMETERS_PER_BATCH = 100
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
LONGEST = 250
"""Most characters of a name in MLflow's databases."""
WORDS = {
    "@": "_at_",
    "=": "_eq_",
    "<": "_lt_",
    ">": "_gt_",
    "+": "_plus_",
    "*": "_times_",
    "&": "_and_",
    "%": "_percent_",
}
_REFUSED = re.compile(r"[^/\w.\- :]")
_DIGEST_BYTES = 8

Entry = TypeVar("Entry")


def mlflow_name(name: str) -> str:
    """The name under which MLflow has what is called `name`, the same for equal names. Of at most `LONGEST` characters;
    a cut name ends with a digest of the whole.
    """
    safe_name = "/".join(map(_part, _REFUSED.sub(_escape, name).split("/")))
    if safe_name.startswith(".."):
        safe_name = f"_x2e_{safe_name[1:]}"
    if len(safe_name) <= LONGEST:
        return safe_name
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{safe_name[: LONGEST - len(digest) - 1].rstrip('/.')}_{digest}"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return WORDS.get(character, f"_x{ord(character):x}_")


def _part(part: str) -> str:
    """What is between two slashes, unless a path would leave it out."""
    return part if part not in ("", ".", "..") else f"_x{part[:1].encode().hex()}_{part[1:]}"


def flatten(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Nested parameters as `a.b.c` -> text, in the given order, by their names in MLflow. Values other than text are
    written as JSON.

    Texts are cut to `PARAMETER_LENGTH` characters: see `shortened`.
    """
    flat: dict[str, str] = {}
    for keys, value in leaves(parameters):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        flat[mlflow_name(".".join(keys))] = shortened(text, PARAMETER_LENGTH)
    return flat


def shortened(text: str, length: int) -> str:
    """The text, cut to at most `length` characters; a cut text ends with a digest of the whole."""
    if len(text) <= length:
        return text
    note = f" ... cut from {len(text)} characters, {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
    return text[: length - len(note)] + note


def shortened_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags by their names in MLflow, each value cut to `TAG_LENGTH` characters: see `shortened`."""
    return {mlflow_name(key): shortened(value, TAG_LENGTH) for key, value in tags.items()}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite, under their names in MLflow, whose charts can show neither NaN nor infinity."""
    return {mlflow_name(name): float(value) for name, value in metrics.items() if math.isfinite(value)}


def batches(entries: Sequence[Entry], size: int) -> Iterator[list[Entry]]:
    """Successive lists of at most `size` entries, in order."""
    for start in range(0, len(entries), size):
        yield list(entries[start : start + size])
