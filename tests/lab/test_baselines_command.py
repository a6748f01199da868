"""`turnwise baselines`, on real worlds."""

from pathlib import Path

import pytest

from lab.baselines import PAGE_FILE, record_baselines
from turnwise.checking.baselines import RECORD_FILE, recorded_baselines
from turnwise.errors import ConfigurationError


def test_what_was_recorded_and_has_not_changed_is_not_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_baselines(["bandit"], tmp_path, 40)
    first = (tmp_path / RECORD_FILE).read_text()
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == [
        f"bandit {setting} {baseline}"
        for setting in ("default", "ragen-paper", "ragen-swapped")
        for baseline in ("random", "oracle")
    ]
    record_baselines(["bandit"], tmp_path, 40)
    assert capsys.readouterr().out == ""
    assert (tmp_path / RECORD_FILE).read_text() == first
    # Another number of episodes is another measurement.
    record_baselines(["bandit"], tmp_path, 60)
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert {line.score.episodes for line in recorded_baselines(tmp_path)} == {60}


def test_other_worlds_and_worlds_that_cannot_be_made_keep_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_baselines(["bandit"], tmp_path, 10)
    before = (tmp_path / RECORD_FILE).read_text().replace('"world": "bandit"', '"world": "agentgym"')
    (tmp_path / RECORD_FILE).write_text(before)
    capsys.readouterr()
    record_baselines(["agentgym", "bandit"], tmp_path, 10)
    said = capsys.readouterr().out
    assert said.startswith("agentgym: left as it was, since it cannot be made here: it needs the parameters")
    assert [line.world for line in recorded_baselines(tmp_path)] == ["agentgym"] * 6 + ["bandit"] * 6
    assert (tmp_path / PAGE_FILE).read_text().count("| `bandit` |") == 7


def test_known_figures_are_compared_with(tmp_path: Path) -> None:
    figures = "figures:\n  - {world: bandit, setting: '', baseline: random, low: 0.5, high: 0.5, source: a coin, "
    (tmp_path / "known-figures.yaml").write_text(figures + "difference: none}\n")
    record_baselines(["bandit"], tmp_path, 40)
    assert "| random on `bandit`, default | 0.500 | a coin |" in (tmp_path / PAGE_FILE).read_text()


def test_an_unknown_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TW-unknown-world"):
        record_baselines(["bandits"], tmp_path, 10)
