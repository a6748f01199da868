"""The share of the work that is done counts all stages that there will be, and bars fit a terminal."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flows.plan import plan_ablation
from turnwise.experiment import load
from turnwise.progress import Progress, report
from turnwise.store import default_store
from turnwise.training_runs import display as display_module
from turnwise.training_runs.display import Display, bars
from turnwise.training_runs.observing import StageCall
from turnwise.training_runs.work_left import expected_work

PARAMETERS = Path(__file__).parents[2] / "tests" / "parameters.yaml"


@pytest.mark.parametrize(
    ("variant", "more", "once"),
    [
        # Of each iteration and of each run, in seconds, in addition to those of GRPO.
        ("{ credit: { estimator: gae } }", 0.8 + 1.2, 0.5),  # values, learn_values; initial_critic
        ("{ optimization: { reference: { coefficient: 0.1, estimator: k2, place: loss } } }", 0.4, 0),  # reference
        ("{ selection: { rule: uncertainty, options: { share: 0.5 } } }", 0.1, 0),  # select
        ("{ optimization: { method: evolution } }", 0.1 + 1.5 - 0.1 - 1.2, 0),  # keep, fine_tune; no credit, no update
    ],
)
def test_the_stages_that_a_variant_adds_are_expected(variant: str, more: float, once: float) -> None:
    iterations, seeds = 7, 3
    settings = [f"optimization.iterations={iterations}", "ablation.seeds=[1, 2, 3]", "ablation.variants=[one]"]
    base = load(PARAMETERS, settings=[*settings, "variants={one: {}}"])
    changed = load(PARAMETERS, settings=[*settings, f"variants={{one: {variant}}}"])
    added = expected_work(plan_ablation(changed).kinds) - expected_work(plan_ablation(base).kinds)
    assert added == pytest.approx(seeds * (iterations * more + once))


def test_on_a_narrow_terminal_words_are_cut_and_bars_and_times_are_whole() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    shown = bars(console)
    shown.add_task("everything", total=100, completed=75, note="about 1600 s left  success 0.22")
    label = "random-filter seed 5 iteration 24: evaluate"
    shown.add_task(label, total=100, completed=100, note="evaluation: sampled 100 of 100")
    with console.capture() as captured:
        console.print(shown.get_renderable())
    lines = captured.get().splitlines()
    assert len(lines) == 2 and all(len(line) <= 80 for line in lines)
    assert all(line.rstrip().endswith("0:00:00") for line in lines)
    assert "75%" in lines[0] and "about 1600 s left" in lines[0] and "━" * 6 in lines[0]
    assert "100%" in lines[1] and "random-filter seed 5" in lines[1] and "…" in lines[1]


def test_each_worker_has_a_line_with_its_stage_and_how_far_that_is() -> None:
    console = Console(width=100, force_terminal=True, color_system=None)
    display = Display(console, {"rollout": 8, "update": 8})
    one, other = display.worker("worker 2"), display.worker("worker 3")
    one.started("rollout", "base seed 1 iteration 4")
    one.progressed(Progress("sampling", 12, 64, {"success": 0.5}))
    other.started("update", "base seed 2 iteration 9")
    assert display.worker("worker 2") is one
    lines = shown_by(display, console)
    assert any("base seed 1 iteration 4" in line and "19%" in line and "worker 2" in line for line in lines)
    assert any("base seed 2 iteration 9" in line and "worker 3" in line for line in lines)
    one.rest()
    assert not any("worker 2" in line for line in shown_by(display, console)), "one that waits is not shown"


def test_the_success_in_training_is_not_that_of_greedy_rollouts(turnwise_home: Path) -> None:
    display = Display(Console(quiet=True), {"rollout": 2})
    for label, success in (("base seed 1 iteration 4", 0.25), ("base seed 1 iteration 4 greedy", 0.75)):
        with default_store().write("rollout") as draft:
            draft.metrics["success"] = success
        display.finished(StageCall("rollout", label, draft.reference, False, 1.0, "rollout/digest"))
    assert "success 0.25" in display._outlook()


def test_in_a_log_each_line_says_which_run_it_is_of_and_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display_module, "SECONDS_BETWEEN_LINES", 0.0)
    log = io.StringIO()
    display = Display(Console(file=log, width=200), {"rollout": 8, "update": 8})
    worker = display.worker("worker 2")
    with display.showing():
        display.started("rollout", "base seed 1 iteration 4")
        worker.started("rollout", "base seed 2 iteration 4")
        for done in (0, 0, 32, 0, 64):  # of two phases, each of which begins with none
            report("sampling", done, 64)
            worker.progressed(Progress("sampling", done, 64))
        display.started("evaluate", "base seed 1 iteration 4")
        report("sampling", 0, 64)
    of_stage = [f"sampling {done} of 64" for done in (0, 32, 64)]
    assert [line.strip() for line in log.getvalue().splitlines()] == [
        *(f"base seed {seed} iteration 4: rollout  {note}" for note in of_stage for seed in (1, 2)),
        "base seed 1 iteration 4: evaluate  sampling 0 of 64",
    ]


def shown_by(display: Display, console: Console) -> list[str]:
    with console.capture() as captured:
        console.print(display._bars.get_renderable())
    return captured.get().splitlines()


def test_libraries_draw_no_progress_bars_of_their_own_between_ours() -> None:
    begun = "from flows.runtime.process_settings import prepare_process; prepare_process()"
    bars = "from tqdm.auto import tqdm; print(len(list(tqdm(range(3)))))"
    shown = subprocess.run([sys.executable, "-c", f"{begun}; {bars}"], capture_output=True, text=True, check=True)
    assert (shown.stdout, shown.stderr) == ("3\n", "")
