"""Turnwise: reproducible reinforcement learning of multi-turn language-model agents.

    import turnwise as tw

    experiment = tw.load("experiments/starpo_s.yaml")
    done = tw.ablation(experiment)
    done.curves(), done.turns(), done["mt-grpo seed 1"].policy().model, done.report.figures

`__init__.pyi`, next to this file, lists the public names and where each is defined; type checkers and editors read it
too. A name is imported when it is first used, so that importing this package imports nothing heavy. What runs
experiments is defined in `flows`, above the library; no module of the library imports that.

The library does not use Prefect or DVC, and uses MLflow only in `turnwise.tracking`.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_INSTALLED_BESIDE = ("flows", "tasks", "envs")
"""The packages that this distribution installs next to `turnwise`. Nobody else needs to import them."""


def __getattr__(name: str) -> Any:
    if name not in _public_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _public_names()[name]
    if module.partition(".")[0] in _INSTALLED_BESIDE:
        _require_own_packages()
    value = globals()[name] = getattr(import_module(module), original)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})


@cache
def _public_names() -> dict[str, tuple[str, str]]:
    """By public name, the module that defines it and its name there: the imports of `__init__.pyi`."""
    import ast

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.asname: (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }


@cache
def _require_own_packages() -> None:
    """Raise ImportError where a module of the user's hides one of the packages that are installed with this one."""
    ours = Path(__file__).resolve().parents[1]
    for name in _INSTALLED_BESIDE:
        spec = find_spec(name)
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if found is None or found.parents[1] != ours:
            raise ImportError(
                f"turnwise needs its own package {name!r}, at {ours / name}; Python finds "
                f"{found or 'none'} instead: rename that, or take its folder from the front of sys.path"
            )
