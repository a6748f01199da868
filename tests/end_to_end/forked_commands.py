"""Commands of one tool, each in a process of its own that begins with the tool's modules imported.

The imports of Prefect or DVC take longer than most of what their commands do. So one process, which runs this file,
imports them once and is forked for each command:

    python forked_commands.py MODULE ...     imports these
    a line: ["output file", "module", "argument", ...]     runs that module as `python -m` does
    a line: the exit status
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback


def main() -> None:
    """Run the commands that standard input gives, one after the other, until it is closed."""
    sys.path[0] = os.getcwd()  # as `python -m` has it
    from turnwise.own_process import collect_rarely

    collect_rarely()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        output, module, *arguments = json.loads(line)
        if not (process := os.fork()):
            run(output, module, arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def run(output: str, module: str, arguments: list[str]) -> None:
    """In a forked process: run a module and end; what it says goes to a file."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, place in enumerate((nothing, file, file)):
        os.dup2(place, number)
    sys.argv = [module, *arguments]
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    from turnwise.own_process import leave

    leave(status)


if __name__ == "__main__":
    main()
