"""Every stage, and every kind of thing that it reads from outside: contents and versions count, places do not."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from corridor_worlds import Corridor
from pydantic import BaseModel

import tasks
from tasks.caching import Dependencies, all_dependencies
from turnwise.config.agent import Agent
from turnwise.config.schema import WorldSection
from turnwise.errors import ConfigurationError
from turnwise.store import Reference, fingerprint, plugin_identity
from turnwise.store.plugin_identity import Outside
from turnwise.world import World, world_class

for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
    importlib.import_module(module.name)

ROOT = Path(__file__).parents[2]
NOTHING = Reference(kind="nothing", digest="0" * 32)
VERSIONS = {"server": "1", "numpy": "1"}


class Reading(Corridor):
    """Reads a file, a folder, a package and a server; what it keeps in a folder of its own decides nothing."""

    def __init__(self, *, notes: str, folder: str, cache: str, lamps: int = 1) -> None:
        super().__init__()

    @classmethod
    def files(cls, parameters: Mapping[str, Any]) -> Mapping[str, Path | None]:
        return {"notes": Path(parameters["notes"]), "folder": Path(parameters["folder"]), "cache": None}

    @classmethod
    def distributions(cls, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return ("numpy",)

    @classmethod
    def state(cls, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        return {"server": VERSIONS["server"]}


def of_field(stage: Dependencies, kind: type) -> list[str]:
    """The names of the parameters of this kind."""
    model = get_type_hints(stage.function)["parameters"]
    return [name for name, field in model.model_fields.items() if kind in (field.annotation, *_parts(field.annotation))]


def _parts(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ())


def declared(kind: type) -> list[Dependencies]:
    ours = [stage for stage in all_dependencies().values() if stage.function.__module__.startswith("tasks.")]
    return sorted((stage for stage in ours if of_field(stage, kind)), key=lambda stage: stage.name)


PLAYING, OUTSIDE = declared(WorldSection), declared(Outside)


WITHOUT_PLUGINS = {"agent": Agent.model_construct(format="search"), "added_rewards": {}, "format": "search"}
"""Parameters in which stages that play look for plug-ins."""


def parameters_of(stage: Dependencies, **parameters: Any) -> BaseModel:
    """The parameters of a call; those that nobody looks at here are left out."""
    model: type[BaseModel] = get_type_hints(stage.function)["parameters"]
    plain = {name: value for name, value in WITHOUT_PLUGINS.items() if name in model.model_fields}
    return model.model_construct(**plain, **parameters)


def key(stage: Dependencies, **parameters: Any) -> str:
    """The key of a call."""
    inputs = {name: NOTHING for name in stage.signature.parameters if name not in ("parameters", "label")}
    return stage.key(parameters_of(stage, **parameters), **inputs)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "deep" / "er").mkdir(parents=True)
    for name in ("notes.txt", "deep/one", "deep/er/two"):
        (folder / name).write_text(name)
    return folder


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents are those of the first look in a process; what is asked for is what this test says."""
    monkeypatch.setattr(plugin_identity, "_first", {})
    monkeypatch.setattr(plugin_identity, "versions", lambda names: {name: VERSIONS[name] for name in names})


def reading(place: Path, **more: Any) -> dict[str, Any]:
    return {"notes": str(place / "notes.txt"), "folder": str(place / "deep"), "cache": str(place), **more}


def alone(place: Path, **more: Any) -> WorldSection:
    return WorldSection(name=f"{__name__}:Reading", parameters=reading(place, **more))


def in_a_mixture(place: Path, **more: Any) -> WorldSection:
    part = {"world": f"{__name__}:Reading", "parameters": reading(place, **more)}
    return WorldSection(name="mixture", parameters={"parts": {"first": part, "second": {"world": "bandit"}}})


def another_byte(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (place / "notes.txt").write_text("notes.tx!")
    return reading(place)


def another_byte_in_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (place / "deep" / "er" / "two").write_text("deep/er/tw!")
    return reading(place)


def another_file_in_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (place / "deep" / "three").write_text("")
    return reading(place)


def another_version_of_the_server(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(VERSIONS, "server", "2")
    return reading(place)


def another_version_of_the_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(VERSIONS, "numpy", "2")
    return reading(place)


def another_parameter(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return reading(place, lamps=2)


def another_name_of_the_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return reading(place.rename(place.with_name("there")))


def another_spelling(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return reading(place / ".." / place.name)


def a_relative_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(place.parent)
    return reading(Path(place.name))


def another_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (place / "notes.txt").touch()
    return reading(place)


def another_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return reading(place, cache="elsewhere")


Change = Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]
COUNTS: list[Change] = [
    another_byte,
    another_byte_in_the_folder,
    another_file_in_the_folder,
    another_version_of_the_server,
    another_version_of_the_package,
    another_parameter,
]
DOES_NOT: list[Change] = [another_name_of_the_folder, another_spelling, a_relative_path, another_time, another_cache]


@pytest.mark.parametrize("change", [*COUNTS, *DOES_NOT])
@pytest.mark.parametrize("section", [alone, in_a_mixture])
@pytest.mark.parametrize("stage", PLAYING, ids=lambda stage: stage.name)
def test_what_a_world_reads_is_part_of_every_stage_that_plays_it(
    stage: Dependencies,
    section: Callable[..., WorldSection],
    change: Change,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = key(stage, world=section(place))
    changed = change(place, monkeypatch)
    plugin_identity._first.clear()
    after = key(stage, world=section(place, **changed))
    assert (after != before) == (change in COUNTS)


@pytest.mark.parametrize("stage", OUTSIDE, ids=lambda stage: stage.name)
def test_content_from_outside_is_part_of_every_stage_that_reads_it(stage: Dependencies) -> None:
    for name in of_field(stage, Outside):
        before = key(stage, **{name: Outside(place="here", content="1")})
        assert key(stage, **{name: Outside(place="there", content="1")}) == before
        assert key(stage, **{name: Outside(place="here", content="2")}) != before


def test_stages_of_every_kind_were_looked_at() -> None:
    assert {"task_set", "demonstrations", "warm_start", "rollout", "evaluate", "baseline", "report"} <= {
        stage.name for stage in PLAYING
    }
    assert [stage.name for stage in OUTSIDE] == [
        "conversations",
        "converted_policy",
        "initial_policy",
        "rescore",
        "tokenizer",
        "update",
    ]


@pytest.mark.parametrize("stage", PLAYING, ids=lambda stage: stage.name)
def test_the_worlds_code_is_part_of_every_stage_that_plays_it(stage: Dependencies, place: Path) -> None:
    parameters = parameters_of(stage, world=in_a_mixture(place))
    assert {"envs.mixture.world", "envs.bandit.world", __name__} <= set(stage.modules(parameters))


def test_no_stage_depends_on_a_plot_or_a_page() -> None:
    modules = sorted({stage.function.__module__ for stage in all_dependencies().values()} - {__name__})
    code = fingerprint._closure(tuple(name for name in modules if name.startswith("tasks.")), frozenset())
    drawn = [source.name for source in code if source.name.endswith(("figures", "_page", "style", "markup"))]
    assert drawn == []


def test_a_file_that_changes_while_a_process_plays_stops_it(place: Path) -> None:
    key(PLAYING[0], world=alone(place))
    (place / "notes.txt").write_text("other")
    with pytest.raises(ConfigurationError, match=r"world\.parameters\.notes.*TW-changed-file"):
        key(PLAYING[0], world=alone(place))


def test_a_file_that_is_not_there_is_refused(place: Path) -> None:
    (place / "notes.txt").unlink()
    with pytest.raises(ConfigurationError, match=r"world\.parameters\.notes.*TW-missing-file"):
        key(PLAYING[0], world=alone(place))


NAMED = [
    ("search_corpus", {"questions": "q.json", "corpus": "c.jsonl", "cache": "i"}, {"questions", "corpus", "cache"}),
    ("webshop", {"catalogue": "i.json", "goals": "g.json"}, {"catalogue", "goals"}),
    ("envs.browser.webarena:WebArena", {"task_files": "t", "logins": "l"}, {"task_files", "logins"}),
    ("browser", {"executable": "/usr/bin/chromium"}, {"executable"}),
]


@pytest.mark.parametrize(("name", "parameters", "named"), NAMED, ids=[name for name, _, _ in NAMED])
def test_our_worlds_name_their_files(name: str, parameters: dict[str, Any], named: set[str]) -> None:
    world: type[World] = world_class(name)
    assert set(world.files(parameters)) == named
    assert world.files({}) == {}
