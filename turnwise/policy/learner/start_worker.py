"""Start a process that trains a policy together with others: `python -m turnwise.policy.learner.start_worker`.

It ends as soon as the one that started it does, also while it imports torch, which takes seconds.
"""

from __future__ import annotations

import os
import sys
import threading


def _end_with_standard_input() -> None:
    """End this process when the one that started it has closed its standard input, or was killed."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    from turnwise.policy.learner.worker import main

    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], float(sys.argv[6]))
