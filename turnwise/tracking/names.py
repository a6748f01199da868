"""Names as MLflow takes them, of whatever has one: metrics, parameters, tags, scores.

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
import re

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


def mlflow_name(name: str) -> str:
    """The name under which MLflow has what is called `name`, the same for equal names. Of at most `LONGEST` characters;
    a cut name ends with a digest of the whole.
    """
    written = "/".join(map(_part, _REFUSED.sub(_written, name).split("/")))
    if written.startswith(".."):
        written = f"_x2e_{written[1:]}"
    if len(written) <= LONGEST:
        return written
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{written[: LONGEST - len(digest) - 1].rstrip('/.')}_{digest}"


def _written(refused: re.Match[str]) -> str:
    character = refused.group()
    return WORDS.get(character, f"_x{ord(character):x}_")


def _part(part: str) -> str:
    """What is between two slashes, unless a path would leave it out."""
    return part if part not in ("", ".", "..") else f"_x{part[:1].encode().hex()}_{part[1:]}"
