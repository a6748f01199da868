"""Of other packages only public names are used, and nothing in them is replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("flows", "tasks", "turnwise", "envs", "lab")
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "turnwise/policy/engines/single_queries.py": {
        "numba.config.CPU_NAME": "Numba's own option, set while one function is compiled and put back",
        "numba.config.CPU_FEATURES": "Numba's own option, set while one function is compiled and put back",
    },
    "turnwise/policy/engines/vllm_start.py": {
        "torch.cpu.get_capabilities": "for each call of the engine that asks, put back after it: see the module",
        "torch.set_num_threads": "for the engine's start alone, put back after it: see the module",
    },
    "turnwise/policy/model.py": {
        "torch._dynamo": "torch has no public bound on recompilations, beyond which layers silently run uncompiled",
    },
    "turnwise/policy/side_by_side.py": {
        "model.config._attn_implementation": "transformers has no public name by which it is read",
    },
    "envs/sciworld/simulator.py": {
        "agent.getAgentVisibleObjects(False)._2": "the public name of a Scala tuple's second part",
        "parser.parse(action, visible, agent.universe(), agent.agent(), *monitors, container)._1": "of its first part",
    },
}
"""By file, the private names and the replaced ones that it may use, each with the reason."""
PUBLIC = {"logging.raiseExceptions", "os._exit", "os.environ"}
"""What looks private or replaced, and is documented as it is used."""


def files() -> list[Path]:
    return [path for package in OURS for path in sorted((ROOT / package).rglob("*.py"))]


def foreign_names(tree: ast.Module) -> dict[str, str]:
    """By name in the module, the module or object of another package that it was imported as."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                names[each.asname or each.name.partition(".")[0]] = each.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return {name: target for name, target in names.items() if target.partition(".")[0] not in OURS}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def our_private_names(trees: Mapping[Path, ast.Module]) -> set[str]:
    """The private attributes and functions that our own classes and modules have."""
    names = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def private_or_replaced(tree: ast.Module, ours: set[str]) -> Iterator[str]:
    foreign = foreign_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] not in OURS:
            for each in node.names:
                if any(map(is_private, [*node.module.split("."), each.name])) and node.module != "__future__":
                    yield f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if any(map(is_private, each.name.split("."))))
        elif isinstance(node, ast.Attribute):
            base: ast.expr = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            of_foreign = isinstance(base, ast.Name) and base.id in foreign
            if (is_private(node.attr) and (of_foreign or node.attr not in ours)) or (
                of_foreign and isinstance(node.ctx, ast.Store)
            ):
                yield ast.unparse(node)


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in files()}


def test_no_private_name_of_another_package_is_used_and_nothing_in_one_is_replaced(
    trees: Mapping[Path, ast.Module],
) -> None:
    ours = our_private_names(trees)
    wrong, used = [], set()
    for path, tree in trees.items():
        name = path.relative_to(ROOT).as_posix()
        for each in private_or_replaced(tree, ours):
            if each in ALLOWED.get(name, {}):
                used.add((name, each))
            elif each not in PUBLIC:
                wrong.append(f"{name}: {each}")
    assert wrong == []
    assert used == {(name, each) for name, allowed in ALLOWED.items() for each in allowed}, "an exception is not needed"


@pytest.mark.parametrize(
    "source",
    [
        "import prefect\nprefect.events.utilities.EventsWorker = int",
        "from prefect._internal.engine import resolve",
        "import threading\nthreading._shutdown()",
        "import torch._inductor",
        "def f(block):\n    return block._resolve_path('x')",
    ],
)
def test_what_is_private_or_replaced_is_found(source: str) -> None:
    assert list(private_or_replaced(ast.parse(source), set()))
