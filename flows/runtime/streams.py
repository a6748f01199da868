"""Standard streams that end nothing that computes.

* A character that the output's encoding lacks (ASCII, Latin-1) is written as the nearest one that it has: `-0.46` for
  `−0.46`, `?` where nothing is near.
* An output whose reader has gone (`| head -1`) is written to nowhere from then on.
* So is one that cannot be written, as on a full disk; the command says so at its end and does not end with 0.
* A stream that was closed when the process began (`>&-`) is opened onto nowhere, so that no file that is opened later
  gets its number, and with it what is printed.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import unicodedata
from typing import Any, TextIO

NEAREST = "nearest"
"""The name of the error handler that writes the nearest character."""
_NEAREST = {"–": "-", "−": "-", "—": "-", "…": "...", "×": "x", "·": ".", "↑": "^", "↓": "v", "→": "->", "±": "+-"}
_NEAREST |= {"≤": "<=", "≥": ">=", "≈": "~", "√": "sqrt", "‘": "'", "’": "'", "“": '"', "”": '"', "•": "*"}
_BY_NAME = {"BLOCK": "#", "HORIZONTAL": "-", "VERTICAL": "|", "BOX DRAWINGS": "+", "BRAILLE": "*"}
"""Characters of pictures, by a word of their names."""
_NOT_WRITTEN: dict[int, OSError] = {}
"""By the number of the stream, why it cannot be written."""


def prepare_streams() -> None:
    """Replace the standard streams of this process, which must be one of ours: call it first."""
    codecs.register_error(NEAREST, _nearest)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _open_if_closed(number)
        stream = getattr(sys, name)
        if stream is None:  # it was closed as Python began
            nowhere = open(os.devnull, "w" if number else "r", encoding="utf-8", errors=NEAREST)  # noqa: SIM115
            setattr(sys, name, nowhere)
        elif number and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _replaced(stream, number))


def unwritten_output() -> str | None:
    """Why what was printed could not be written to standard output, in one sentence; None where nobody missed it."""
    if 1 not in _NOT_WRITTEN:
        return None
    why = os.strerror(_NOT_WRITTEN[1].errno or 0).lower()
    return f"standard output must be written; {why}: what is missing there was computed"


def _open_if_closed(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)


def _replaced(stream: TextIO, number: int) -> TextIO:
    stream.flush()
    assert isinstance(stream, io.TextIOWrapper)
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, "wb", closefd=False)),
        encoding=stream.encoding,
        errors=NEAREST,
        line_buffering=stream.line_buffering or stream.write_through,
    )


class _Output(io.FileIO):
    """A stream that goes on nowhere once it cannot be written."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EPIPE:
                _NOT_WRITTEN.setdefault(self.fileno(), error)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def _nearest(error: UnicodeError) -> tuple[str | bytes, int]:
    """The handler of a character that cannot be encoded. A byte of a path that is no UTF-8 stays that byte."""
    assert isinstance(error, UnicodeEncodeError)
    character, after = error.object[error.start], error.start + 1
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), after
    if character in _NEAREST:
        return _NEAREST[character], after
    letters = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    name = unicodedata.name(character, "")
    return letters or next((sign for word, sign in _BY_NAME.items() if word in name), "?"), after
