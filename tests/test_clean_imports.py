"""Importing our packages changes nothing in a user's process; what a process of ours needs, it asks for by a call."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

STATE = '''
import gc, logging, os, signal, sys, threading, types, warnings

def everywhere():
    """What an import could change for code that has nothing to do with ours, each thing by its name."""
    loggers = {"root": logging.getLogger(), **logging.Logger.manager.loggerDict}
    loggers = {name: each for name, each in loggers.items() if isinstance(each, logging.Logger)}
    return {
        "gc": [gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), gc.get_debug()],
        "environment": dict(os.environ),
        "log handlers": {name: [each.level, list(map(id, each.handlers)), list(map(id, each.filters))]
                         for name, each in loggers.items() if each.level or each.handlers or each.filters},
        "logging": [id(logging.getLogRecordFactory()), id(logging.getLoggerClass()), logging.root.manager.disable,
                    id(logging.lastResort), logging.raiseExceptions],
        "warnings": list(map(str, warnings.filters)),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "hooks": [id(sys.excepthook), id(sys.displayhook), id(sys.unraisablehook), id(threading.excepthook),
                  id(sys.gettrace()), id(sys.getprofile()), id(warnings.showwarning), *map(id, sys.meta_path),
                  *map(id, sys.path_hooks)],
        "interpreter": [sys.path, sys.argv, sys.getrecursionlimit(), sys.getswitchinterval(), os.getcwd(),
                        id(sys.stdout), id(sys.stderr), id(sys.stdin)],
        "signals": {str(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
    }

OURS = ("turnwise", "flows", "tasks", "envs")

def differing(before, after):
    """The names of what differs. A logger that only now exists does, if it is ours."""
    new = after["log handlers"].keys() - before["log handlers"].keys()
    after["log handlers"] = {name: each for name, each in after["log handlers"].items()
                             if name not in new or name.partition(".")[0] in OURS}
    return [name for name in before if before[name] != after[name]]

def attributes():
    """Every attribute of every other package's modules and of the classes that these define, by its owner."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in (*OURS, "__main__") or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({(f"{name}.{key}", each): held for each, held in list(vars(value).items())})
    return found

def changed(before, after):
    """The attributes that are another object than before. What only comes with a further import is none."""
    ignored = {"__warningregistry__", "_abc_impl", "__loader__", "__spec__"}
    return sorted(".".join(name) for name, value in after.items()
                  if name in before and before[name] is not value and name[1] not in ignored
                  and not isinstance(value, (int, float, str, types.ModuleType)))
'''

PACKAGE = (
    STATE
    + """
before = everywhere()
__import__(sys.argv[1])
after = everywhere()
import json
print(json.dumps([[name, str(before[name]), str(after[name])] for name in differing(before, after)]))
"""
)

EVERY_MODULE = (
    STATE
    + """
import ast, importlib, json, pathlib

folders = [pathlib.Path(name) for name in OURS]
paths = sorted(path for folder in folders for path in folder.rglob("*.py") if path.name != "__main__.py")
modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]

def imported(path):
    # what the module imports of others as it is imported itself, at any depth but within a function
    waiting = list(ast.parse(path.read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((each.name, None) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module, each.name) for each in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting.extend(ast.iter_child_nodes(node))

others = sorted({each for path in paths for each in imported(path) if each[0].partition(".")[0] not in OURS},
                key=str)
missing = set()
gc.disable()  # it would go over what these leave a hundred times
for module, name in others:
    try:
        found = importlib.import_module(module)
        if name is not None and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except ImportError:
        missing.add(module)

gc.enable()

said = []
before, held = everywhere(), attributes()
for module in modules:
    try:
        importlib.import_module(module)
    except ImportError as error:
        if not any(str(error.name or "").startswith(each.partition(".")[0]) for each in missing):
            raise
    after = everywhere()
    said += [[module, name, str(before[name]), str(after[name])] for name in differing(before, after)]
    before = after
said += [["one of them", each, "", ""] for each in changed(held, attributes())]
print(json.dumps({"said": said, "modules": len(modules)}))
"""
)


def said(code: str, *arguments: str) -> object:
    """What a program of a fresh interpreter prints as JSON at its end."""
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("package", ["turnwise", "flows", "tasks"])
def test_importing_a_package_of_ours_changes_nothing_in_the_process(package: str) -> None:
    assert said(PACKAGE, package) == []


def test_importing_any_module_of_ours_changes_nothing_that_the_packages_which_it_imports_do_not() -> None:
    found = said(EVERY_MODULE)
    assert isinstance(found, dict)
    assert found["said"] == [] and found["modules"] > 300
