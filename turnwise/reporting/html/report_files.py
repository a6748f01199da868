"""The report's files: the page, its data, its tables and its figures, put into a folder together.

Drawing takes most of the time of a repeat that finds everything else in the store, so a page and figures that are there
already are not drawn again. Only drawing imports matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from turnwise.reporting.data.tables import (
    ACCOUNT_FILE,
    DATA_FILE,
    FIGURES_FOLDER,
    METRICS_FOLDER,
    VERDICTS_FILE,
    as_csv,
    tables,
)
from turnwise.results.report_data import ReportData
from turnwise.store.atomic_write import write_together, write_whole
from turnwise.store.digests import digest_of, sha256_of
from turnwise.store.fingerprint import fingerprint

PAGE_FILE = "report.html"
TEMPLATES = Path(__file__).parent / "templates"


def write_report(
    report: ReportData, folder: Path, further: Mapping[str, bytes] | None = None, record_path: Path | None = None
) -> None:
    """Write `report.html`, `report.json`, tables as CSV and `figures/` into `folder`; each figure is a PNG and a CSV.

    The same report data give the same bytes. All files are put in place together; files of a previous report that this
    one does not have are removed. Other files in the folder stay.

    Args:
        report: the report data.
        folder: made where it is missing.
        further: other files, by name.
        record_path: a file that keeps what the page and the figures were drawn from. If the folder holds them as they
            were drawn from the same, they stay. None: they are drawn in any case.
    """
    files, obsolete = tables(report), [VERDICTS_FILE, ACCOUNT_FILE]
    obsolete += [f"{METRICS_FOLDER}/{path.name}" for path in (folder / METRICS_FOLDER).glob("*.json")]
    source = _source(files[DATA_FILE])
    if record_path is None or not _holds(folder, record_path, source):
        former = [path.name for path in (folder / FIGURES_FOLDER).glob("*") if path.suffix in (".png", ".csv")]
        obsolete += [f"{FIGURES_FOLDER}/{name}" for name in former]
        files |= _draw_files(report)
    write_together(folder, {**files, **(further or {})}, obsolete)
    if record_path is not None and PAGE_FILE in files:
        names = [PAGE_FILE, *(name for name in files if name.startswith(FIGURES_FOLDER))]
        contents = {name: sha256_of(folder / name) for name in names}
        write_whole(record_path, json.dumps({"source": source, "files": contents}))


def _draw_files(report: ReportData) -> dict[str, bytes]:
    """The page and the figures, drawn."""
    from turnwise.reporting.html.page import all_figures, page

    files = {PAGE_FILE: page(report).encode()}
    for figure in all_figures(report):
        files[f"{FIGURES_FOLDER}/{figure.name}.png"] = figure.png()
        files[f"{FIGURES_FOLDER}/{figure.name}.csv"] = as_csv(figure.header, figure.data)
    return files


def _source(data: bytes) -> str:
    """The digest of all that page and figures are drawn from: report data, code, templates, packages."""
    templates = [path.read_text(encoding="utf-8") for path in sorted(TEMPLATES.iterdir()) if path.is_file()]
    packages = [version(name) for name in ("jinja2", "matplotlib")]
    return digest_of([data.decode(), fingerprint(["turnwise.reporting.html.page"]), templates, packages])


def _holds(folder: Path, record_path: Path, source: str) -> bool:
    """Whether the folder holds page and figures as they were drawn from this source."""
    try:
        record = json.loads(record_path.read_bytes())
    except (FileNotFoundError, ValueError):  # never drawn, or a power failure has left a part of the file
        return False
    return record["source"] == source and all(
        (folder / name).is_file() and sha256_of(folder / name) == content for name, content in record["files"].items()
    )
