"""What of the uncommitted diff is recorded: no new file unless asked for, and nothing that looks secret.

    text = recordable(uncommitted_diff(), new_files=False)

Others may read a tracking store. So of a file whose name looks secret (`.env`, `secrets.yaml`, `server.pem`) nothing is
recorded, and of other files a marker instead of each line that looks as if it held a password, a key or a token. Of
what was left out only the names are recorded, in the first line, which `git apply` passes over. The digest in the
lineage is that of the whole diff: it still says whether the code was the commit's.

Both are guesses by the looks. A guess too many costs a line of the record; code of a language model speaks of tokens on
every page, so a `token` counts only where a value follows that looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

LEFT_OUT = "# Left out: "
"""How the first line begins of a diff of which something is missing."""
MARKER = "[left out: this line looks secret]"

_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_NEW = re.compile(r"^new file mode ", re.MULTILINE)

_SECRET_NAME = re.compile(
    r"secret|credential|passw(or)?d|passphrase|(^|[^a-z])(api|private|access)[-_]?keys?([^a-z]|$)"
    r"|(^|[^a-z])token(?![a-z]|_\w+\.py$)|^\.env($|[^a-z])|\.env$|^\.?(netrc|pgpass|pypirc|npmrc|kubeconfig|authorized_keys)$"
    r"|^id_[a-z0-9]+(\.pub)?$|\.(pem|key|p8|p12|pfx|jks|keystore|kdbx|ppk|gpg|asc)$"
    r"|(^|[^a-z])tokens\.(json|toml|txt|ya?ml|ini|csv)$"
)
"""Of a lower-case file or folder name. A module such as token_texts.py is about tokens and holds none."""

_OPAQUE = r"[A-Za-z0-9+/=_.~-]{8,}"
_KNOWN_FORMS = re.compile(
    r"\b(sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bhf_[A-Za-z0-9]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bA[KS]IA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bxox[abeprs]-[\w-]{10,}|\bya29\.[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}"  # JSON web tokens
    r"|://[^\s/:@'\"]*:[^\s/@'\"]+@"  # a password within an address
    r"|\b(bearer|basic)\s+" + _OPAQUE,
    re.IGNORECASE,
)
_LONG_AND_MIXED = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")

_CALLED_SECRET = r"(?:secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|account)[-_]?key)[\w.-]*"
_CALLED_TOKEN = r"(?:token|pwd)"
"""Ends of names. What comes before matters only where a line must begin with the name, or with a `token` as a word."""
_QUOTED_SECRET = re.compile(rf"{_CALLED_SECRET}[\"']?\]?\s*[:=]\s*[rbf]?[\"'][^\"']+[\"']", re.IGNORECASE)
_QUOTED_TOKEN = re.compile(rf"(?<![^\W_]){_CALLED_TOKEN}[\"']?\]?\s*[:=]\s*[rbf]?[\"']{_OPAQUE}[\"']", re.IGNORECASE)
_BEGINS = r"^\W*(?:export\s+)?"
_PLAIN_SECRET = re.compile(rf"{_BEGINS}[\w.-]*{_CALLED_SECRET}\s*[:=]\s*[^\s#]", re.IGNORECASE)
_PLAIN_TOKEN = re.compile(rf"{_BEGINS}(?:[\w.-]*[_.-])?{_CALLED_TOKEN}\s*[:=]\s*{_OPAQUE}\s*(?:#.*)?$", re.IGNORECASE)
"""Values without quotes, as in YAML and shell; in Python they are expressions."""

_KEY_BEGINS, _KEY_ENDS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"), re.compile(r"-----END [A-Z ]*PRIVATE KEY")


def recordable(diff: str, new_files: bool) -> str:
    """The diff without what must not be recorded; its first line says what that was, where there was any.

    Args:
        diff: as Git writes it, without renames.
        new_files: whether files that the commit does not have are recorded, too.
    """
    recordable_lines, left_out = [], []
    for part in _FILE.split(diff):
        if not part:
            continue
        name = _name(part)
        if has_secret_name(name):
            left_out.append(f"{name} (its name looks secret)")
        elif _NEW.search(part.partition("\n@@")[0]) and not new_files:
            left_out.append(f"{name} (a new file: commit it, or set tracking.new_files)")
        else:
            lines = part.splitlines(keepends=True)
            redacted = list(_without_secrets(lines, python=name.endswith(".py")))
            if count := sum(one != other for one, other in zip(lines, redacted, strict=True)):
                left_out.append(f"{count} {'line' if count == 1 else 'lines'} of {name} (looks secret)")
            recordable_lines += redacted
    return "".join([f"{LEFT_OUT}{', '.join(left_out)}\n"] * bool(left_out) + recordable_lines)


def left_out_of(diff: str) -> str | None:
    """What a recorded diff says that it leaves out; None where it is whole."""
    first = diff.partition("\n")[0]
    return first.removeprefix(LEFT_OUT) if first.startswith(LEFT_OUT) else None


def has_secret_name(path: str) -> bool:
    """Whether a file's name, or that of a folder it lies in, looks as if it held secrets."""
    return any(_SECRET_NAME.search(part.lower()) for part in PurePosixPath(path).parts)


def holds_secret(line: str, python: bool = False) -> bool:
    """Whether a line of a file looks as if it held a password, a key or a token."""
    if _KNOWN_FORMS.search(line) or _QUOTED_SECRET.search(line) or _QUOTED_TOKEN.search(line):
        return True
    if not python and (_PLAIN_SECRET.search(line) or _PLAIN_TOKEN.search(line)):
        return True
    return any(_is_mixed(word) for word in _LONG_AND_MIXED.findall(line))


def _is_mixed(text: str) -> bool:
    """Whether a long word has small and capital letters and digits as keys do: names and hexadecimal digests do not."""
    kinds = (any(map(str.islower, text)), any(map(str.isupper, text)), sum(map(str.isdigit, text)) >= 4)
    return all(kinds)


def _name(part: str) -> str:
    """The file that one part of a diff is about: Git writes its name twice, `a/NAME b/NAME`."""
    both = part.partition("\n")[0].removeprefix("diff --git ")
    return both[: len(both) // 2].strip('"').removeprefix("a/")


def _without_secrets(lines: Sequence[str], python: bool) -> Iterator[str]:
    """The lines of one file's part, in place of those that look secret the marker."""
    changes = within_key = False
    for line in lines:
        changes = changes or line.startswith("@@")
        within_key = within_key or bool(_KEY_BEGINS.search(line))
        if not changes or not (within_key or holds_secret(line[1:], python)):
            yield line
        elif line.startswith("@@"):
            yield f"{'@@'.join(line.split('@@')[:2])}@@ {MARKER}\n"
        else:
            yield f"{line[0]}{MARKER}\n"
        within_key = within_key and not _KEY_ENDS.search(line) and not line.startswith("@@")
