"""The benchmark of a card, where there is none: what it asks for, what it leaves out, and all of its parts on a CPU."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import MINUTES, NO_CARD, PARTS, cards, main

SCIENCE = Path(__file__).parents[1] / "docs" / "science"
FIGURES = [name for part in PARTS for name in part.figures]


def test_without_a_card_it_says_in_a_sentence_what_it_needs_before_torch_is_loaded() -> None:
    if cards():
        pytest.skip("there is a card")
    asked = "import sys; from benchmarks.gpu import main\ntry: main([])\nfinally: print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"python -m benchmarks.gpu: {NO_CARD}\n"
    assert ended.stdout == "False\n"


def test_what_no_time_is_left_for_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", "--minutes", "0"])
    assert ended.value.code == 1
    assert f"not measured: {', '.join(FIGURES)}" in capsys.readouterr().out


def test_a_part_whose_time_is_over_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--device", "cpu", "--minutes", "0.001"])
    assert "seconds were over" in capsys.readouterr().out


def test_all_parts_have_the_time_that_was_promised() -> None:
    assert MINUTES <= 10 and sum(part.share for part in PARTS) == pytest.approx(1)


def test_every_part_is_measured_at_a_small_shape(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--device", "cpu", "--engine", "embedded", "--minutes", "9"])
    told = capsys.readouterr().out.splitlines()
    assert [name for name in FIGURES if any(line.startswith(name) for line in told)] == FIGURES
    assert not any(line.startswith("not measured") for line in told)


@pytest.mark.parametrize(
    ("metric", "digits"),
    [("rollout/success", 2), ("seconds/sampling", 1), ("seconds/update", 1), ("update/mismatch_nats", 3)],
)
def test_the_page_has_what_was_recorded_on_the_card(metric: str, digits: int) -> None:
    with (SCIENCE / "data" / "smollm2-search-card.csv").open(newline="") as file:
        recorded = [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == metric]
    cells = " | ".join(f"{each:.{digits}f}" for each in recorded)
    assert len(recorded) == 5 and f"| {cells} |" in (SCIENCE / "smollm2.md").read_text(encoding="utf-8")
