"""Files of JSON lines and Parquet files that others have written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from turnwise.data.row_files import read_rows
from turnwise.errors import ConfigurationError


def test_both_kinds_of_files_give_their_rows_each_with_its_place(tmp_path: Path) -> None:
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    lines.write_bytes(b'{"a": 1, "b": "x"}\r\n\n{"a": 2, "b": "y"}\n')
    parquet.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), table)
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert list(read_rows(lines)) == [(rows[0], f"{lines}, line 1"), (rows[1], f"{lines}, line 3")]
    assert list(read_rows(table)) == [(rows[0], f"{table}, row 1"), (rows[1], f"{table}, row 2")]
    assert [row for row, _ in read_rows(table, "a")] == [{"a": 1}, {"a": 2}]
    assert [row for row, _ in read_rows(table, "c")] == rows


@pytest.mark.parametrize(
    ("name", "content", "place"), [("a.jsonl", b'{}\n{"a": ', "a.jsonl, line 2"), ("a.parquet", b"no", "a.parquet")]
)
def test_a_file_that_is_neither_is_refused_with_the_place(
    tmp_path: Path, name: str, content: bytes, place: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"{place} must be .*TW-file-format"):
        list(read_rows(tmp_path / name))
