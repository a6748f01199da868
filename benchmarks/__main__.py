"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from benchmarks import against_trl, coverage, credit_and_update, credit_bias, engines, learner, plateau, service, worlds

if __name__ == "__main__":
    coverage.main()
    credit_bias.main()
    plateau.main()
    learner.main()
    credit_and_update.main()
    service.main()
    worlds.main()
    engines.main()
    against_trl.main()
    os._exit(0)  # tearing vLLM down takes seconds
