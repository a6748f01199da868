"""Start the process of an engine: `python -m turnwise.policy.engines.start_worker HANDLE OPTIONS`.

It ends as soon as the one that started it does, also while it imports torch, which takes seconds.
"""

from __future__ import annotations

import json
import sys

from turnwise.own_process import collect_rarely
from turnwise.policy.child_process import end_with_standard_input

if __name__ == "__main__":
    end_with_standard_input()
    collect_rarely()
    from turnwise.policy.engines.worker import main

    main(int(sys.argv[1]), json.loads(sys.argv[2]))
