"""Code fingerprints: part of a stage's cache key, so that a cached result is used only if the same code would run now.

The fingerprint of a module is a digest of syntax trees: its own, and those of all project modules that it imports,
directly or indirectly. Comments, docstrings and formatting do not count; a changed function three imports away does.
It is computed from the source without importing anything. It cannot see modules that are named only at run time (such
as a world in the configuration: pass its name to `fingerprint` too) or data files (make them an input, or part of the
code).

A package of the library whose `__init__.py` only gathers names of its modules is looked through: who imports such a
name depends on the module that defines it and not on the package's others. That is sound where importing a module
changes nothing besides, as it is in the library (`tests/test_clean_imports.py`); packages of others count whole.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.util
import json
import logging
import math
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import turnwise
from turnwise.errors import ConfigurationError
from turnwise.project import home
from turnwise.store.atomic_write import write_whole
from turnwise.store.digests import digest_of

logger = logging.getLogger(__name__)

SECONDS_TO_SETTLE = 2.0
SECONDS_BETWEEN_LOOKS = 10.0
_not_yet_written: list[str] = []
"""The modules that this process has read and not yet written for others."""

OUR_PACKAGES = frozenset({"turnwise", "tasks", "envs", "flows"})
DETERMINES_NOTHING: Mapping[str, str] = {
    "flows": "in which order stages run",
    "tasks": "a stage's function and what it uses of this package are in its key by themselves (`function_digest`)",
    "turnwise.store": "where artifacts lie; what is in them is verified against their digests",
    "turnwise.tracking": "what MLflow shows of results",
    "turnwise.project": "in which folder a project lies",
    "turnwise.progress": "what the terminal shows meanwhile",
    "turnwise.errors": "what is said where there is no result",
    "turnwise.policy.models_in_memory": "which models stay loaded between stages; how they compute is in the keys",
    "turnwise.child_process": "how requests and answers travel between processes",
    "turnwise.suggestions": "which name a message suggests",
}
"""Packages and modules whose code is in no cache key, with what it is for instead of determining a result."""
LOOKED_THROUGH = "turnwise"
"""The package in which an `__init__.py` that only gathers names is looked through."""
EVERYTHING = "*"
"""In place of a name: a module is imported whole."""
Wanted = tuple[str, str]
"""A module, and the name that is imported from it, or `EVERYTHING`."""


def fingerprint(module_names: Sequence[str], without: Sequence[str] = ()) -> str:
    """A digest of the code of these modules and of every project module that they import.

    Project modules are the packages turnwise, tasks, envs and flows, the package or file that each named module belongs
    to, and everything that is not installed, i.e. lies neither in a site-packages folder nor in Python's own library.
    Imports inside functions count; imports under `if TYPE_CHECKING:` do not. A source is read once per process, since
    the cache key must describe the code that runs and not an edit made meanwhile (see `warn_of_edits`).

    Args:
        module_names: dotted names, e.g. `["tasks.rollout.rollout", "envs.search"]`.
        without: project modules and packages that are neither read nor followed, since their code cannot change a
            result.

    Raises:
        ConfigurationError: a named module cannot be found.
    """
    sources = _closure(tuple(sorted(set(module_names))), frozenset(without))
    # A source without a statement computes nothing: adding an empty __init__.py must not change the fingerprint.
    return digest_of({source.name: source.digest for source in sources if not source.is_empty})


def modules_of(module_names: Sequence[str], without: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the modules whose code `fingerprint` digests, sorted. Raises ConfigurationError as it does."""
    sources = _closure(tuple(sorted(set(module_names))), frozenset(without))
    return tuple(source.name for source in sources if not source.is_empty)


def function_digest(function: Callable[..., Any], without: tuple[str, ...] = ()) -> str:
    """A digest of a function and of the functions, classes and constants that it uses of its top-level package.

    Decorators, annotations, docstrings and the code of other packages do not count, nor do modules and packages of
    `without`. A source is read once per process.
    """
    module = function.__module__
    return definition_digest(module, function.__qualname__, module.partition(".")[0], without)


@cache
def definition_digest(module: str, name: str, package: str, without: tuple[str, ...] = ()) -> str:
    """`function_digest` of a function or class of this name in a module, which is not imported.

    `package` is the one whose modules count.
    """
    if name not in _definitions(module):  # defined within another function
        return digest_of([ast.dump(node) for node in _definitions(module).values()])

    def counts(origin: str) -> bool:
        return _is_within(origin, [package]) and not _is_within(origin, without)

    used: dict[str, str] = {}
    waiting = [(module, name)]
    while waiting:
        module, name = waiting.pop()
        node, here = _definitions(module).get(name), module.rpartition(".")[0]
        if isinstance(node, ast.ImportFrom):
            if counts(origin := _absolute(node, here)):
                waiting.append((origin, _original(node, name)))
        elif node is not None and f"{module}.{name}" not in used:
            used[f"{module}.{name}"] = ast.dump(node)
            for each in ast.walk(node):
                if isinstance(each, ast.Name):
                    waiting.append((module, each.id))
                elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                    beside = _definitions(module).get(each.value.id)
                    if isinstance(beside, ast.ImportFrom):
                        whole = f"{_absolute(beside, here)}.{_original(beside, each.value.id)}"
                        if counts(whole):
                            waiting.append((whole, each.attr))
    return digest_of(used)


@cache
def _definitions(module: str) -> Mapping[str, ast.stmt]:
    """By name, the statement of a module that defines it, or imports it from another module; without texts."""
    spec = _find(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {}
    tree = _WithoutAnnotations().visit(_WithoutTexts().visit(_parse(Path(spec.origin))))
    return {name: node for node in tree.body for name in _defined_names(node)}


def _original(node: ast.ImportFrom, name: str) -> str:
    """What a name is called where it is imported from."""
    return next(alias.name for alias in node.names if name in (alias.asname, alias.name))


def _defined_names(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines, or imports from another module."""
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def installed_imports(module_names: Sequence[str]) -> frozenset[str]:
    """The top-level names of the third-party packages that the fingerprinted code imports; no standard library.

    Raises ConfigurationError as `fingerprint` does.
    """
    sources = _closure(tuple(sorted(set(module_names))), frozenset(DETERMINES_NOTHING))
    ours = OUR_PACKAGES | {source.name.partition(".")[0] for source in sources} | sys.stdlib_module_names
    return frozenset({name.partition(".")[0] for source in sources for name, _ in source.imports} - ours - {""})


@dataclass(frozen=True)
class _Source:
    """One module's source as it was when this process first read it."""

    name: str
    path: Path
    state: tuple[int, int] | None
    """Modification time in nanoseconds and size in bytes; None where the file was missing."""
    is_empty: bool
    """Whether it has no statement besides docstrings."""
    digest: str
    """SHA-256 of the syntax tree without docstrings, in hexadecimal."""
    imports: tuple[Wanted, ...]
    """What it imports: (a, b) for `from a import b`, (a, EVERYTHING) for `import a`, in the order of the source."""
    origins: Mapping[str, Wanted] | None
    """Of a package that only gathers names of modules: where each name is from. None of any other module."""


_edited_files: set[Path] = set()
"""Files that this process has warned of."""
_looked_at: dict[Path, float] = {}
"""By file, when it was last compared with what was read, in seconds of the monotonic clock."""


def warn_of_edits(module_names: Sequence[str], without: Sequence[str] = ()) -> None:
    """Warn, once per file, of code edited since this process fingerprinted it: the process still runs the old code.

    Each file is looked at every `SECONDS_BETWEEN_LOOKS` at most: a stage has dozens, and ends within milliseconds.
    """
    now = time.monotonic()
    for source in _closure(tuple(sorted(set(module_names))), frozenset(without)):
        if source.path in _edited_files or now - _looked_at.get(source.path, -math.inf) < SECONDS_BETWEEN_LOOKS:
            continue
        _looked_at[source.path] = now
        if _state(source.path) != source.state:
            _edited_files.add(source.path)
            logger.warning(
                "%s has changed since this process began, which goes on with the code it began with: "
                "start it again to run the new code.",
                source.path,
            )


@cache
def _closure(names: tuple[str, ...], without: frozenset[str]) -> tuple[_Source, ...]:
    """The sources of these modules and of all project modules that they import, sorted by name."""
    ours = OUR_PACKAGES | {name.partition(".")[0] for name in names}
    for name in names:
        if _find(name) is None:
            raise ConfigurationError(
                f"the code of every stage and world must be found, to know when it changed; there is no module {name} "
                "on the path: install its package, or run from the folder that holds it",
                "TW-plugin-import",
            )
    sources: dict[str, _Source] = {}
    waiting: list[Wanted] = [(name, EVERYTHING) for name in names]
    seen: set[Wanted] = set()
    while waiting:
        wanted = waiting.pop()
        module, name = wanted
        top = module.partition(".")[0]
        if wanted in seen or _is_within(module, without) or not (top in ours or _is_uninstalled(top)):
            continue
        seen.add(wanted)
        package = module.rpartition(".")[0]
        if package and not _is_looked_through(package):
            waiting.append((package, EVERYTHING))
        source = _read(module)
        if name != EVERYTHING and source is not None and _is_looked_through(module):
            if module == LOOKED_THROUGH and name in turnwise.PUBLIC:
                waiting.append((turnwise.PUBLIC[name], name))
                continue
            if name in (origins := source.origins or {}):
                waiting.append(origins[name])
                continue
            if _find(f"{module}.{name}") is not None:
                waiting.append((f"{module}.{name}", EVERYTHING))
                continue
        elif name != EVERYTHING:
            waiting.append((f"{module}.{name}", EVERYTHING))
        if source is not None and module not in sources:
            sources[module] = source
            waiting.extend(source.imports)
    _remember()
    return tuple(sources[name] for name in sorted(sources))


def _is_looked_through(package: str) -> bool:
    if package == LOOKED_THROUGH:  # it has what `import turnwise as tw` offers, and loads it when it is asked for
        return True
    source = _read(package)
    return source is not None and source.origins is not None


def _is_within(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of these, or in one of these packages."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


@cache
def _read(name: str) -> _Source | None:
    """The module's source; None where the name is not a module, or has no Python file (a namespace package)."""
    spec = _find(name)
    if spec is None or not spec.has_location or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin)
    state = _state(path)
    if (entry := _cached_sources().get(f"{name} {path}")) is not None and entry[0] == list(state or ()):
        imports = tuple((module, imported) for module, imported in entry[3])
        origins = None if entry[4] is None else {each: (module, old) for each, (module, old) in entry[4].items()}
        return _Source(name, path, state, entry[1], entry[2], imports, origins)
    tree = _parse(path)
    is_package = spec.submodule_search_locations is not None
    imports = (*_imports(tree, name if is_package else name.rpartition(".")[0]), *_attributes(tree))
    origins = _name_origins(tree, name) if is_package and _is_within(name, [LOOKED_THROUGH]) else None
    tree = _WithoutTexts().visit(tree)
    digest = hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
    # The clock of a file system is coarse: of a file written just now, the next write might have the same time.
    if state is not None and time.time() - state[0] / 1e9 > SECONDS_TO_SETTLE:
        _cached_sources()[f"{name} {path}"] = [list(state), not tree.body, digest, imports, origins]
        _not_yet_written.append(name)
    return _Source(name, path, state, not tree.body, digest, imports, origins)


def _memory() -> Path | None:
    """The file that keeps what was read of sources, for other processes; None outside of a project."""
    try:
        return home() / "sources.json"
    except ConfigurationError:
        return None


@cache
def _cached_sources() -> dict[str, list[Any]]:
    """By name and path of a module: the state of its file, whether it is empty, its digest, its imports and its names.

    Parsing two hundred files takes a second, so it is kept in the home. It counts only for this Python and this module.
    """
    path = _memory()
    if path is None or not path.is_file():
        return {}
    with suppress(ValueError):
        memory = json.loads(path.read_text(encoding="utf-8"))
        if memory["by"] == _reader():
            return memory["sources"]
    return {}


def _remember() -> None:
    """Keep what this process has read, if there is a home already. Processes that write at once lose only time."""
    path = _memory()
    if _not_yet_written and path is not None and path.parent.is_dir():
        write_whole(path, json.dumps({"by": _reader(), "sources": _cached_sources()}))
        _not_yet_written.clear()


def _reader() -> list[Any]:
    return [sys.version, list(_state(Path(__file__)) or ())]


def _parse(path: Path) -> ast.AST:
    """The file's syntax tree, parsed with garbage collection off.

    CPython 3.11 can raise SystemError when another thread parses at the same time, and a garbage collection within the
    parser lets other threads run.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    finally:
        if collecting:
            gc.enable()


def _find(name: str) -> ModuleSpec | None:
    """The spec of a module, found without importing the module or its packages; None where there is none."""
    package, _, _ = name.rpartition(".")
    if not package:
        try:
            return importlib.util.find_spec(name)
        except ValueError:
            return None
    parent = _find(package)
    if parent is None or parent.submodule_search_locations is None:
        return None
    for location in parent.submodule_search_locations:
        finder = pkgutil.get_importer(location)
        if finder is not None and (spec := finder.find_spec(name)) is not None:
            return spec
    # Ask the other finders too, as an import would: an editable installation adds a finder of its own.
    others = (finder for finder in sys.meta_path if finder is not PathFinder)
    specs = (finder.find_spec(name, list(parent.submodule_search_locations)) for finder in others)
    return next((spec for spec in specs if spec is not None), None)


@cache
def _is_uninstalled(top: str) -> bool:
    """Whether a top-level package or module is the user's own file, such as one next to a world of a single file.

    That is: neither in site-packages nor in the standard library.
    """
    spec = _find(top)
    if top in sys.stdlib_module_names or spec is None:
        return False
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or [])
    return not any({"site-packages", "dist-packages"} & set(Path(place).parts) for place in places)


def _imports(tree: ast.AST, package: str) -> Iterator[Wanted]:
    """Everything that the tree imports, at any depth, except under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, EVERYTHING) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, package)
            for alias in node.names:
                if alias.name == "*":
                    yield origin, EVERYTHING
                    yield from ((module, EVERYTHING) for module in _list_modules(origin))
                else:
                    yield origin, alias.name
        elif isinstance(node, ast.If) and _asks_for_type_checking(node.test):
            for branch in node.orelse:
                yield from _imports(ast.Module([branch], []), package)
        else:
            yield from _imports(node, package)


def _attributes(tree: ast.AST) -> Iterator[Wanted]:
    """What the tree uses of the library as attributes: `tw.CreditBatch` after `import turnwise as tw`."""
    nodes = list(ast.walk(tree))
    aliases = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == LOOKED_THROUGH
    }
    for node in nodes if aliases else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield LOOKED_THROUGH, node.attr


def _name_origins(tree: ast.AST, package: str) -> dict[str, Wanted] | None:
    """Where each name is from that the `__init__.py` of a package gathers; None where it does anything else.

    Besides imports of names it may have texts, `__all__`, and what is for the type checker alone.
    """
    names: dict[str, Wanted] = {}
    for node in ast.iter_child_nodes(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_list = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        is_for_types = isinstance(node, ast.If) and _asks_for_type_checking(node.test) and not node.orelse
        if isinstance(node, ast.ImportFrom) and all(alias.name != "*" for alias in node.names):
            for alias in node.names:
                names[alias.asname or alias.name] = (_absolute(node, package), alias.name)
        elif not (is_text or is_list or is_for_types):
            return None
    return names


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _list_modules(package: str) -> list[str]:
    """The modules directly in a package, any of which `from package import *` may import."""
    spec = _find(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    return [f"{package}.{path.stem}" for folder in folders for path in sorted(Path(folder).glob("[!_]*.py"))]


def _asks_for_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class _WithoutAnnotations(ast.NodeTransformer):
    """Removes decorators and annotations of a module's functions: what is declared of them, and not what they do."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list, node.returns = [], None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node


class _WithoutTexts(ast.NodeTransformer):
    """Removes statements that are only a string: docstrings, and the strings under fields."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def _state(path: Path) -> tuple[int, int] | None:
    try:
        now = path.stat()
    except FileNotFoundError:
        return None
    return now.st_mtime_ns, now.st_size
