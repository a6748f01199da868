"""On a machine without the program that plays a world: what is only read needs none, and what plays is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from envs.browser.chromium import NAMED_BY
from envs.service.offers import read_offers, served
from flows.commands.plan import show_plan
from flows.commands.worlds import named_world, show_worlds
from flows.prepare import prepare_materials
from flows.python.running import ablation
from lab.baselines import record_baselines
from turnwise.checking.baselines import RECORD_FILE
from turnwise.errors import ConfigurationError
from turnwise.experiment import Experiment, load

ROOT = Path(__file__).parents[2]
MISSING = {"browser": "executable must be the path of a Chromium", "sciworld": "sciworld must find Java on the path"}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(NAMED_BY, "/nowhere/chromium")


def read(world: str, **changed: object) -> Experiment:
    return load(ROOT / "params.yaml", [ROOT / "experiments" / "worlds" / f"{world}.yaml"], changed)


@pytest.mark.parametrize("world", MISSING)
def test_a_configuration_is_read_and_planned(world: str) -> None:
    said = io.StringIO()
    show_plan(read(world), Console(file=said, width=80))
    assert f"playing     not possible here: world {world!r}: {MISSING[world]}" in said.getvalue()
    assert "Nothing was computed." in said.getvalue()


@pytest.mark.parametrize("world", MISSING)
@pytest.mark.parametrize("begin", [prepare_materials, ablation])
def test_a_run_is_refused_before_anything_is_computed(
    world: str, begin: Callable[[Experiment], object], turnwise_home: Path
) -> None:
    with pytest.raises(ConfigurationError, match=rf"{world}.*{MISSING[world]}.*TW-missing-program"):
        begin(read(world))
    assert not list(turnwise_home.glob("store/*"))


def test_what_a_part_of_a_mixture_needs_is_missed_too() -> None:
    read("mixture").require_programs()
    with pytest.raises(ConfigurationError, match=rf"'mixture'.*{MISSING['sciworld']}.*TW-missing-program"):
        read("mixture", **{"world.parameters.parts.sciworld": {}}).require_programs()


@pytest.mark.parametrize("world", MISSING)
def test_who_checks_plays_or_serves_a_world_is_told(world: str) -> None:
    with pytest.raises(ConfigurationError, match=MISSING[world]):
        named_world(world, "", [])
    with pytest.raises(ValueError, match=f"world '{world}': {MISSING[world]}"):
        served(read_offers([world]))


def test_worlds_are_listed_with_what_they_lack_and_keep_their_recorded_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_worlds(tmp_path)
    told = " ".join(capsys.readouterr().out.split())
    record_baselines(list(MISSING), tmp_path, 1)
    said = capsys.readouterr().out
    for world, missing in MISSING.items():
        assert f"cannot be played here: {missing}" in told
        assert f"{world}: left as it was, since it cannot be played here: {missing}" in said
    assert not (tmp_path / RECORD_FILE).exists()
