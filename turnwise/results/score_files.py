"""Score files of other systems, read as one table with a row per score and the place where it stands.

    CSV, TSV             a row per score; ragged rows are refused
    Weights & Biases     a table export is such a CSV; a chart export (`Step`, `RUN - METRIC`, ...) is unpivoted
    JSON lines           a row per line, such as verl's `{"step": 7, "data": {...}}` and lm-evaluation-harness's samples
    JSON                 a list of rows; `trainer_state.json` of transformers and TRL; lm-evaluation-harness's results;
                         Inspect's logs, also as `.eval`

What a file does not name as a column is read off its path: the method and the seed of `grpo/seed-3/trainer_state.json`.
Sources: docs.wandb.ai "Export data", huggingface.co/docs/transformers `TrainerState`, verl `FileLogger`,
lm-evaluation-harness `docs/interface.md`, inspect.aisi.org.uk "Log Files".
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

METHOD, SEED, TASK = "method (of the path)", "seed (of the path)", "task (of the file)"
"""The columns that hold what was read off a file's path or its header, not off a row."""
PLACE = "place"
"""The name of the table's index: where a row stands, such as `scores.csv, row 3`."""
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's grades: correct, partly correct, incorrect, no answer."""
ENVELOPES = ("config", "summary", "metrics", "data", "scores")
"""Objects within a row whose entries are columns of their own."""
SEED_IN_NAME = re.compile(r"(?:^|(?<=[-_./ ]))(?:seed|run|trial|s)[-_=. ]?(\d+)(?=$|[-_./ ])", re.IGNORECASE)
RUN_OF_CLEANRL = re.compile(r"(?P<task>.+?)__(?P<method>.+?)__(?P<seed>\d+)__\d+")
SAMPLES_OF_HARNESS = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.\-]+")
SAYS_NOTHING = re.compile(r"trainer_state|metrics|logs?|results?|progress|history|scores?|eval|checkpoint-\d+|\W*")
"""Names of files and folders that name no method."""

Row = dict[str, Any]


def read_score_files(paths: Sequence[Path]) -> pd.DataFrame:
    """All rows of the files, with the place of each as the index.

    Raises ConfigurationError, with file and row, for a file that is missing, empty, ragged or of an unknown format.
    """
    import pandas as pd

    roots = [path.resolve() for path in paths]
    places: list[str] = []
    rows: list[Row] = []
    for path, resolved in zip(paths, roots, strict=True):
        named = _named_by_path(resolved, roots)
        count = len(rows)
        for place, row in _rows(path):
            places.append(f"{path}, {place}")
            rows.append({**named, **row})
        if len(rows) == count:
            raise ConfigurationError(
                f"a score file must hold a row at least; {path} has none: leave it out", "TW-empty-file"
            )
    return pd.DataFrame(rows, index=pd.Index(places, name=PLACE))


def method_and_seed(name: str) -> Row:
    """What the name of a run says: its method, its seed, and its task, as far as they are in it.

    `Hopper-v4__ppo__1__1657000000` is CleanRL's: task, method, seed and time. Elsewhere the seed is a number after
    `seed`, `run`, `trial` or `s`, and the rest is the method.
    """
    if cleanrl := RUN_OF_CLEANRL.fullmatch(name):
        return {METHOD: cleanrl["method"], SEED: int(cleanrl["seed"]), TASK: cleanrl["task"]}
    numbers = SEED_IN_NAME.findall(name)
    method = "/".join(
        part.strip("-_. ") for part in SEED_IN_NAME.sub("", name).split("/") if not SAYS_NOTHING.fullmatch(part)
    )
    return {**({METHOD: method} if method else {}), **({SEED: int(numbers[-1])} if numbers else {})}


def _named_by_path(path: Path, all_paths: Sequence[Path]) -> Row:
    """What tells a file from the others by its path: only the parts in which paths differ say something."""
    common = set.intersection(*(set(each.with_suffix("").parts) for each in all_paths)) if len(all_paths) > 1 else set()
    parts = path.with_suffix("").parts if len(all_paths) > 1 else (path.stem,)
    return method_and_seed("/".join(part for part in parts if part not in common))


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of one file, each with its place in it."""
    if not path.is_file():
        raise ConfigurationError(f"a score file must exist; found no file {path}", "TW-missing-file")
    if path.suffix == ".eval":
        return _inspect_archive(path)
    if path.suffix in (".csv", ".tsv"):
        return _csv(path)
    if path.suffix == ".jsonl":
        return _json_lines(path)
    if path.suffix == ".json":
        return _json(path)
    raise ConfigurationError(
        f"a score file must end in .csv, .tsv, .jsonl, .json or .eval; found {path}", "TW-file-format"
    )


def _csv(path: Path) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        header = next(reader, [])
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise ConfigurationError(
                f"{path}, row 1: columns must have different names; found {twice} more than once", "TW-repeated-columns"
            )
        chart = [name for name in header[1:] if " - " in name and not name.endswith(("__MIN", "__MAX"))]
        is_chart = bool(chart) and header[0] in ("Step", "Relative Time (Wall)", "Relative Time (Process)", "Wall Time")
        for fields in reader:
            place = f"row {reader.line_num}"
            if not fields:
                continue
            if len(fields) != len(header):
                raise ConfigurationError(
                    f"{path}, {place}: a row must have a field for each of the {len(header)} columns; "
                    f"found {len(fields)}",
                    "TW-row-form",
                )
            row = dict(zip(header, fields, strict=True))
            if not is_chart:
                yield place, row
                continue
            for column in chart:
                run, _, metric = column.rpartition(" - ")
                if row[column]:
                    yield f"{place}, column {column!r}", {"Step": row[header[0]], metric: row[column], "run": run}


def _json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    samples = SAMPLES_OF_HARNESS.fullmatch(path.stem)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        place = f"row {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"{path}, {place}, column {error.colno}: no JSON: {error.msg}", "TW-file-format"
            ) from error
        yield place, {**({TASK: samples["task"]} if samples else {}), **_flat(row, f"{path}, {place}")}


def _json(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{path}, row {error.lineno}, column {error.colno}: no JSON: {error.msg}", "TW-file-format"
        ) from error
    if isinstance(content, dict) and "eval" in content and "samples" in content:
        return _inspect(content["eval"], content["samples"] or [], path)
    if isinstance(content, dict) and isinstance(content.get("results"), dict):
        return _harness_results(content)
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise ConfigurationError(
            f"a JSON score file must be a list of rows, a trainer_state.json with its log_history, results of "
            f"lm-evaluation-harness or a log of Inspect; found none of these in {path}",
            "TW-file-format",
        )
    return ((f"entry {number}", _flat(row, f"{path}, entry {number}")) for number, row in enumerate(rows, 1))


def _harness_results(content: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """One row per task of lm-evaluation-harness's results; a group repeats its subtasks and is left out."""
    model = content.get("model_name") or content.get("config", {}).get("model_args")
    groups = {name for name, subtasks in content.get("group_subtasks", {}).items() if subtasks}
    for task, metrics in content["results"].items():
        if task not in groups:
            scores = {name: value for name, value in metrics.items() if "_stderr" not in name and name != "alias"}
            yield f"task {task}", {**({METHOD: model} if model else {}), TASK: task, **scores}


def _inspect(header: Mapping[str, Any], samples: Iterable[Mapping[str, Any]], path: Path) -> Iterator[tuple[str, Row]]:
    for sample in samples:
        row: Row = {METHOD: header["model"], TASK: header["task"], "sample": sample["id"], "epoch": sample["epoch"]}
        for scorer, score in (sample.get("scores") or {}).items():
            values = score["value"] if isinstance(score["value"], Mapping) else {"": score["value"]}
            for name, value in values.items():
                row[f"{scorer}.{name}".rstrip(".")] = GRADES.get(value, value) if isinstance(value, str) else value
        yield f"sample {sample['id']}, epoch {sample['epoch']}", row


def _inspect_archive(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))["eval"]
            names = sorted(name for name in archive.namelist() if name.startswith("samples/"))
            yield from _inspect(header, (json.loads(archive.read(name)) for name in names), path)
    except (zipfile.BadZipFile, KeyError, NotImplementedError) as error:
        raise ConfigurationError(
            f"{path} must be a finished log of Inspect that Python's zipfile reads; found: {error}: write it as JSON "
            "with `inspect log convert --to json`",
            "TW-file-format",
        ) from error


def _flat(row: object, place: str) -> Row:
    """A row of JSON as columns: the entries of `ENVELOPES` too; other objects and lists are no scores."""
    if not isinstance(row, dict):
        raise ConfigurationError(
            f"{place}: a row must be an object with named values; found {str(row)[:40]}", "TW-row-form"
        )
    inner = itertools.chain.from_iterable(row[name].items() for name in ENVELOPES if isinstance(row.get(name), dict))
    return {name: value for name, value in [*row.items(), *inner] if not isinstance(value, dict | list)}
