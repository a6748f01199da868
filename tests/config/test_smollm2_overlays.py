"""The overlays of the real language model: each is planned, and `make demo LM=smollm2` names one that is there."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from flows.commands.plan import show_plan
from turnwise.experiment import load

ROOT = Path(__file__).parents[2]
OVERLAYS = sorted((ROOT / "experiments" / "smollm2").glob("*.yaml"))
WORLDS = ("babyai", "bandit", "frozen_lake", "sokoban", "textcraft", "webshop")


def test_there_is_an_overlay_for_each_world() -> None:
    assert [path.stem for path in OVERLAYS] == sorted([*WORLDS, "search"])


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.stem)
def test_an_overlay_is_planned_and_compares_grpo_with_credit_by_turns(path: Path) -> None:
    experiment = load(ROOT / "params.yaml", [path])
    assert experiment.world.name == path.stem and experiment.ablation.name == f"smollm2-{path.stem}"
    pays_at_the_end_alone = path.stem in ("babyai", "textcraft", "webshop")
    by_turns = "gigpo" if pays_at_the_end_alone else "mt-grpo"
    assert [experiment.variant(name).credit.estimator for name in ("grpo-or", by_turns)] == ["grpo", by_turns]
    shown = io.StringIO()
    show_plan(experiment, Console(file=shown, width=120))
    assert "policy      smollm2-135m" in shown.getvalue() and "Nothing was computed." in shown.getvalue()


@pytest.mark.parametrize(
    ("settings", "overlay"),
    [
        ([], ""),
        (["LM=smollm2"], "experiments/smollm2/search.yaml"),
        (["LM=smollm2", "WORLD=sokoban"], "experiments/smollm2/sokoban.yaml"),
        (["WORLD=sokoban"], "experiments/worlds/sokoban.yaml"),
        (["WORLD=frozen_lake"], "experiments/frozen_lake.yaml"),
    ],
)
def test_make_demo_takes_the_overlay_of_model_and_world(settings: list[str], overlay: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "demo", *settings], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    command = next(line for line in shown.stdout.splitlines() if "turnwise ablation" in line)
    assert command.split()[2:] == [*overlay.split(), "--processes", "2"]
