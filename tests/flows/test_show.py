"""`turnwise show` on a real MLflow store and real episodes: one task over the iterations, filters, and what is refused.

Training batches, with their advantages, are shown by the end-to-end test of a whole chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_runs import record, tiny

from flows.commands import cli
from turnwise.errors import ConfigurationError


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One run that was evaluated three times on the validation task set, four episodes of each task."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWISE_HOME", str(folder))
        patch.setenv("COLUMNS", "100")
        record("shown", {"good": 0.9}, (1,), tiny("data.test_tasks=6"))
        yield folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    cli.run(["show", "good seed 1", *arguments])
    return capsys.readouterr().out


def task_of(text: str) -> str:
    """The heading of the first task."""
    return text.split()[0]


def test_a_task_is_shown_over_the_iterations_with_an_episode_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--split", "validation", "--mode", "sampled"]
    everything = shown(capsys, *asked)
    assert everything.count("validation task set after") == 4
    task = shown(capsys, *asked, "--task", task_of(everything))
    spent = ("0 iterations", "1 iteration", "2 iterations")
    assert [task.count(f"validation task set after {each}, sampled") for each in spent] == [1, 1, 1]
    assert "shown: 3 of 12 such episodes" in task
    assert shown(capsys, *asked, "--task", task_of(everything), "--limit", "2").count("validation task set after") == 2


def test_what_is_filtered_out_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--split", "validation", "--limit", "100"]
    solved, failed = (shown(capsys, *asked, which) for which in ("--success", "--failure"))
    counts = [text.count("validation task set after") for text in (solved, failed)]
    assert sum(counts) == shown(capsys, *asked).count("validation task set after") == 72 and all(counts)
    assert shown(capsys, *asked, "--ending", "success").count("validation task set after") == counts[0]
    assert "after 2 iterations" not in shown(capsys, *asked, "--iteration", "0-1")
    assert "shown: 0 of 0 such episodes" in shown(capsys, *asked, "--world", "nowhere")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--iteration", "one"], r"--iteration.*TW-option-format"),
        (["--iteration", "2-1"], r"--iteration.*TW-option-format"),
        (["--iteration", "²"], r"--iteration.*TW-option-format"),
        (["--advantage", "0.5"], r"--advantage.*TW-option-format"),
        (["--advantage", "1..0"], r"--advantage.*TW-option-format"),
        (["--advantage", "nan.."], r"--advantage.*TW-option-format"),
        (["--advantage", "0..", "--split", "test"], r"--advantage.*TW-unread-option"),
        (["--ending", "won"], r"'won' is not one of 'success'.*TW-command-line"),
        (["--against", "oracle", "--html", "page.html"], r"--against.*TW-unread-option"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        shown(capsys, *arguments)
