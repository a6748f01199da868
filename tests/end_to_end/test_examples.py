"""The notebook and the scripts of `examples/` run, each in the folder of a user who has copied it."""

from __future__ import annotations

import ast
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from comparison import Computed
from project_copy import ROOT, copy_home

from turnwise.reporting.html import report_files

pytestmark = pytest.mark.chain


@pytest.fixture
def folder(tiny_ablation: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one's own with the examples, from which they are run; what `small.yaml` prepares is in its home."""
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    copy_home(tiny_ablation.home, tmp_path / ".turnwise")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("TURNWISE_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "examples")
    monkeypatch.syspath_prepend(tmp_path / "examples")
    return tmp_path / "examples"


def executed(notebook: Path) -> list[Any]:
    """What each cell of code ends with, as a notebook would show it; None for one that ends with a statement."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            *first, last = ast.parse("".join(cell["source"]), cell["id"]).body
            ends_with_value = isinstance(last, ast.Expr)
            exec(compile(ast.Module(first if ends_with_value else [*first, last], []), cell["id"], "exec"), names)
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names) if ends_with_value else None
            shown.append(value)
    return shown


def test_the_notebook_runs_and_every_cell_shows_something(folder: Path) -> None:
    shown = executed(folder / "first_run.ipynb")
    by_type = {type(each).__name__: each for each in shown}
    assert {"Credit", "FinishedAblation", "AblationReport", "DataFrame", "Figure", "Series", "RecordedRuns"} <= {
        *by_type
    }
    assert "<th>mt-grpo</th>" in by_type["AblationReport"]._repr_html_()
    assert by_type["Figure"]._repr_png_().startswith(b"\x89PNG")
    assert (folder.parent / "results" / "notebook" / "report.html").is_file()
    assert not any(
        "outputs" in cell and cell["outputs"] for cell in json.loads((folder / "first_run.ipynb").read_text())["cells"]
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("own_world.py", "The world 'till' keeps its contract: 21 of 21 checks"),
        ("own_credit_rule.py", "The credit rule 'own_credit_rule:best_of_group' keeps its contract: 10 of 10 checks"),
        ("own_reward.py", "The reward 'own_reward:brevity' keeps its contract: 5 of 5 checks passed."),
    ],
)
def test_a_script_runs(
    script: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The notebook's page is drawn, which takes longer than the scripts' runs.
    monkeypatch.setattr(report_files, "_draw_files", lambda _: {report_files.PAGE_FILE: b"This page was not drawn."})
    runpy.run_path(str(folder / script), run_name="__main__")
    printed = capsys.readouterr().out
    assert said in printed and "report.html" in printed
