"""The rows of a file of JSON lines or of a Parquet file that somebody else has written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from turnwise.errors import ConfigurationError

SUFFIXES = (".jsonl", ".parquet")


def read_rows(path: Path, column: str | None = None) -> Iterator[tuple[Any, str]]:
    """Yield each row and its place, `FILE, line N` (lines that are not blank) or `FILE, row N`, counted from 1.

    A file that does not end in .parquet is read as JSON lines. Of a Parquet file that has `column` only that is read.

    Raises:
        ConfigurationError: the file is no Parquet file, or a line is not JSON.
    """
    if path.suffix == ".parquet":
        try:
            table = parquet.ParquetFile(path).read()
        except (pa.ArrowException, OSError) as error:
            raise ConfigurationError(f"{path} must be a Parquet file; found {error}", "TW-file-format") from error
        if column in table.column_names:
            table = table.select([column])
        for number, row in enumerate(table.to_pylist(), start=1):
            yield row, f"{path}, row {number}"
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                yield json.loads(line), f"{path}, line {number}"
            except ValueError as error:
                raise ConfigurationError(
                    f"{path}, line {number} must be a JSON object in UTF-8; found {error}", "TW-file-format"
                ) from error
