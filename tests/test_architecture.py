"""The plan of the house, held against the tree: rooms, arrows, and where tests are."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("lab", "flows", "tasks", "turnwise", "envs")
MAY_IMPORT = {
    "lab": {"lab", "flows", "tasks", "turnwise", "envs"},
    "flows": {"flows", "tasks", "turnwise", "envs"},
    "tasks": {"tasks", "turnwise"},
    "turnwise": {"turnwise"},
    "envs": {"envs", "turnwise"},
}
HOOK = ("flows.commands.cli", "lab.commands")
"""The one import of `lab` from elsewhere: a clone's command line has its commands."""
GROUND = {
    *("world", "seeding", "errors", "child_process", "own_process", "plugins", "progress", "project", "suggestions"),
}
"""What every room of the library may import."""
ROOMS: Mapping[str, set[str]] = {
    "config": set(),
    "store": {"config"},
    "data": {"config", "store"},
    "statistics": {"config", "data"},
    "credit": {"config", "data"},
    "policy": {"config", "data", "credit", "store"},
    "curriculum": {"config", "data"},
    "health": {"config", "data", "statistics", "credit", "policy", "curriculum"},
    "agent": {"config", "data", "credit", "policy", "store"},
    "results": {"config", "data", "health", "policy", "statistics", "store"},
    "checking": {"agent", "config", "credit", "data", "statistics", "store"},
    "tracking": {"config", "data", "store"},
    "reporting": {"checking", "config", "data", "results", "statistics", "store", "tracking"},
    "experiment": {"agent", "config", "credit", "curriculum", "data", "health", "policy", "store"},
    "training_runs": {
        "agent",
        "config",
        "credit",
        "data",
        "experiment",
        "health",
        "policy",
        "results",
        "statistics",
        "store",
    },
    "records": {
        *("agent", "config", "credit", "data", "experiment", "health", "policy"),
        *("reporting", "results", "statistics", "store", "tracking", "training_runs"),
    },
    "exports": {"agent", "config", "data", "policy", "records", "reporting", "store", "tracking", "training_runs"},
    "credit_study": {"checking", "config", "credit", "data", "reporting", "statistics"},
}
"""The rooms of the library, from the ground upward, and what each may import besides the ground. Each imports only
rooms that stand before it in this list, so there is no circle."""
TESTED_BY_MODULE = {"credit", "data", "statistics", "store"}
"""The rooms of the library in which every module has a test file of its own."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc"}
MOST_AT_ROOT = {"turnwise": 10, "flows": 15, "tasks": 9}


@cache
def modules() -> Mapping[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of ours that a module imports, anywhere in it, also for the type checker alone."""
    return frozenset(_imports(tree_of(modules()[name])))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module in modules():
                    yield module
                elif node.module in modules():
                    yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


@pytest.mark.parametrize("layer", LAYERS)
def test_arrows_run_from_flows_to_tasks_to_the_library_and_never_back(layer: str) -> None:
    wrong = [
        f"{name} -> {imported}"
        for name in modules()
        if name.partition(".")[0] == layer
        for imported in imports_of(name)
        if imported.partition(".")[0] not in MAY_IMPORT[layer] and (name, imported) != HOOK
    ]
    assert wrong == []


def test_only_commands_import_commands() -> None:
    wrong = [
        f"{name} -> {imported}"
        for name in modules()
        if not name.startswith(("flows.commands", "lab."))
        for imported in imports_of(name)
        if imported.startswith("flows.commands")
    ]
    assert wrong == []


def test_a_world_imports_of_the_library_only_the_contract_and_seeding() -> None:
    allowed = {"turnwise", "turnwise.world", "turnwise.seeding"}
    wrong = [
        f"{name} -> {imported}"
        for name in modules()
        if name.startswith("envs.")
        for imported in imports_of(name)
        if imported.startswith("turnwise") and imported not in allowed
    ]
    assert wrong == []


def test_the_rooms_of_the_library_are_those_of_the_plan_and_import_downward() -> None:
    order = list(ROOMS)
    for place, room in enumerate(order):
        assert set(order[:place]) >= ROOMS[room], f"{room} imports a room that stands above it in the plan"
    present = {name.split(".")[1] for name in modules() if name.startswith("turnwise.")}
    assert present == GROUND | set(ROOMS)
    wrong = []
    for name in (name for name in modules() if name.startswith("turnwise.")):
        room = name.split(".")[1]
        for imported in (each for each in imports_of(name) if each.startswith("turnwise.")):
            other = imported.split(".")[1]
            if other != room and other not in GROUND | ROOMS.get(room, set()):
                wrong.append(f"{name} -> {imported}")
    assert wrong == []


def test_no_module_imports_itself_over_others() -> None:
    circles = set()
    for start in modules():
        waiting, seen = [(start,)], {start}
        while waiting:
            path = waiting.pop()
            for imported in imports_of(path[-1]):
                # A package's __init__ gathers what its modules define, and they may name their package.
                if imported == start and not start.startswith(path[-1] + "."):
                    circles.add(" -> ".join(sorted({*path})))
                elif imported not in seen:
                    seen.add(imported)
                    waiting.append((*path, imported))
    assert sorted(circles) == []


def test_only_tracking_knows_mlflow_and_only_flows_and_tasks_know_prefect() -> None:
    wrong = []
    for name, path in modules().items():
        for node in ast.walk(tree_of(path)):
            tops = (
                [alias.name.partition(".")[0] for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module.partition(".")[0]]
                if isinstance(node, ast.ImportFrom) and node.module
                else []
            )
            library = name.partition(".")[0] in ("turnwise", "envs")
            if library and ({"prefect", "dvc"} & set(tops)):
                wrong.append(f"{name}: {tops}")
            if library and "mlflow" in tops and not name.startswith("turnwise.tracking"):
                wrong.append(f"{name}: {tops}")
    assert wrong == []


@pytest.mark.parametrize("package", MOST_AT_ROOT)
def test_a_root_holds_few_modules(package: str) -> None:
    found = sorted(path.name for path in (ROOT / package).glob("*.py"))
    assert len(found) <= MOST_AT_ROOT[package], found


def test_no_file_name_says_nothing() -> None:
    assert [name for name, path in modules().items() if path.stem in FORBIDDEN_NAMES] == []


def test_every_stage_has_a_unit_test_file_in_the_folder_of_its_room() -> None:
    missing = []
    for name, path in modules().items():
        if name.startswith(("tasks.", "lab.")):
            for stage in _stages(tree_of(path)):
                expected = ROOT / "tests" / path.parent.relative_to(ROOT) / f"test_{stage}_stage.py"
                if not expected.is_file():
                    missing.append(str(expected.relative_to(ROOT)))
    assert missing == []


def test_every_module_of_these_rooms_has_a_test_file_that_bears_its_name() -> None:
    missing = []
    for name, path in modules().items():
        room, module = name.split(".")[1:2], path.stem
        if name.startswith("turnwise.") and room[0] in TESTED_BY_MODULE and module != "__init__":
            of_room = {test.stem for test in (ROOT / "tests" / room[0]).glob("test_*.py")}
            if not of_room & {f"test_{module}", f"test_{room[0]}_{module}"}:
                missing.append(name)
    assert missing == []


def _stages(tree: ast.Module) -> Iterator[str]:
    """The names of the stages that a module declares."""
    for function in tree.body:
        for decorator in getattr(function, "decorator_list", []):
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "task":
                yield next(ast.literal_eval(each.value) for each in decorator.keywords if each.arg == "name")


def test_files_are_read_and_written_as_utf_8_whatever_the_locale() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in modules().values()
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("read_text", "write_text")
        and len(call.args) <= (call.func.attr == "write_text")
        and not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert found == []
