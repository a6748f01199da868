"""Start a process that trains a policy together with others: `python -m turnwise.policy.learner.start_worker`.

It ends as soon as the one that started it does, also while it imports torch, which takes seconds.
"""

from __future__ import annotations

import sys

from turnwise.own_process import collect_rarely
from turnwise.policy.child_process import end_with_standard_input

if __name__ == "__main__":
    end_with_standard_input()
    collect_rarely()
    from turnwise.policy.learner.worker import main

    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], float(sys.argv[6]))
