"""`turnwise results` takes its figures from the results of each overlay, and keeps what it cannot make here."""

import json
from pathlib import Path

import pytest

from lab import results_page as command
from lab.results_page import PAGE_FILE, RECORD_FILE, read_record
from turnwise.results.report_data import ReportColumn, ReportData, Row
from turnwise.statistics import wilson


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two small runs, `ice` and `lake`, and no results."""
    monkeypatch.setattr(command, "project_root", lambda: tmp_path)
    overlays = tmp_path / "experiments" / "worlds"
    overlays.mkdir(parents=True)
    for name in ("ice", "lake"):
        (overlays / f"{name}.yaml").write_text(f"ablation: {{ name: world_{name} }}\n")
    return tmp_path


def write_results(project: Path, name: str, successes: int) -> None:
    """What an ablation leaves of itself."""
    cells = {"success": wilson(successes, 100)}
    report = ReportData(name, "Play.", [ReportColumn("success", "success")], [Row("grpo", "variant", cells)])
    folder = project / "results" / f"world_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(report.to_json())
    (folder / "digests.json").write_text(json.dumps({"all": f"digest of {successes}"}))


def test_a_line_is_taken_from_results_and_stays_when_they_are_gone(project: Path) -> None:
    docs = project / "docs"
    write_results(project, "lake", 40)
    command.record_results_page([], docs)
    (line,) = read_record((docs / RECORD_FILE).read_text())
    assert line.trained is not None and (line.experiment, line.trained.value) == ("lake", 0.4)
    assert "Not recorded yet: `ice`." in (docs / PAGE_FILE).read_text()

    (project / "results" / "world_lake" / "report.json").unlink()
    write_results(project, "ice", 70)
    command.record_results_page([], docs)
    assert [each.experiment for each in read_record((docs / RECORD_FILE).read_text())] == ["ice", "lake"]

    write_results(project, "ice", 80)
    command.record_results_page([project / "experiments" / "worlds" / "ice.yaml"], docs)
    assert [each.digest for each in read_record((docs / RECORD_FILE).read_text())] == ["digest of 80", "digest of 40"]
