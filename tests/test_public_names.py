"""`import turnwise as tw`: cheap to import, complete, and plain about a file that hides a package of ours."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import turnwise

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "vllm", "mlflow", "prefect", "matplotlib", "pandas", "numpy", "pydantic")


def said(code: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    path = [*map(str, folders), str(ROOT)]
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}; {code}"], capture_output=True, text=True, cwd="/"
    )


def test_importing_the_package_loads_nothing_that_takes_time() -> None:
    code = f"import turnwise; print([name for name in {HEAVY} if name in sys.modules], len(dir(turnwise)) > 40)"
    assert said(code).stdout.strip() == "[] True"


def test_looking_up_what_runs_experiments_loads_neither_prefect_nor_torch() -> None:
    found = said(f"import turnwise; turnwise.ablation; print([name for name in {HEAVY[:6]} if name in sys.modules])")
    assert found.stdout.strip() == "[]", found.stderr


def test_every_public_name_is_there_and_hides_no_module() -> None:
    library = (ROOT / "turnwise").glob("*")
    # A folder that has moved away leaves its __pycache__.
    modules = {path.stem for path in library if path.suffix == ".py" or any(path.glob("**/*.py"))}
    names = turnwise.PUBLIC.keys()
    assert {"load", "ablation", "runs", "read_report", "World", "Estimator", "check_world"} <= names
    assert [name for name in names if getattr(turnwise, name, None) is None] == []
    assert modules & names == set()


def test_type_checkers_and_editors_are_told_of_the_same_names_from_the_same_modules() -> None:
    stub = ast.parse((ROOT / "turnwise" / "__init__.pyi").read_text())
    imports = [(node.module, alias) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert {alias.asname: module for module, alias in imports} == turnwise.PUBLIC
    assert all(alias.name == alias.asname for _, alias in imports), "else a name is private to the stub"


def test_the_library_reads_neither_its_stub_nor_a_module_that_stands_above_it() -> None:
    opened = (
        "import builtins, io, sys; seen = []; sys.addaudithook(lambda event, args: "
        "seen.append(str(args[0])) if event == 'open' else None); "
        "import turnwise; from turnwise import credit, seeding; turnwise.World; turnwise.estimate; "
        "above = [name for name in sys.modules if name.partition('.')[0] in ('flows', 'tasks', 'envs')]; "
        "print([name for name in seen if name.endswith('.pyi')], above)"
    )
    assert said(opened).stdout.strip() == "[] []"


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'turnwise' has no attribute 'ablate'"):
        turnwise.ablate  # noqa: B018


def test_a_file_that_hides_a_package_of_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("")
    hidden = said("import turnwise as tw; tw.World; tw.load", tmp_path)
    needed, found = f"its own package 'tasks', at {ROOT / 'tasks'}", f"Python finds {tmp_path / 'tasks.py'} instead"
    assert hidden.returncode == 1 and f"turnwise needs {needed}; {found}" in hidden.stderr
