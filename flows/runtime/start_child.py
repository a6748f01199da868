"""Start a child of `flows.runtime.child_process`: `python -m flows.runtime.start_child MODULE` runs its `main`.

Here, so that what a process begins with comes before the imports of the module.
"""

from __future__ import annotations

import importlib
import sys

from turnwise.errors import TurnwiseError
from turnwise.own_process import collect_rarely, leave

if __name__ == "__main__":
    collect_rarely()
    module = importlib.import_module(sys.argv[1])
    try:
        module.main()
    except TurnwiseError as error:
        from flows.runtime.child_process import REFUSED

        sys.stderr.write(f"{error}\n")
        leave(REFUSED)
    leave(0)
