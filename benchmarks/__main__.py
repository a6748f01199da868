"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from benchmarks import (
    against_trl,
    attention,
    coverage,
    credit_and_update,
    credit_bias,
    engines,
    growth,
    iteration,
    lag,
    learner,
    memory,
    plateau,
    service,
    start,
    vllm_steps,
    worlds,
)

if __name__ == "__main__":
    start.main()
    coverage.main()
    credit_bias.main()
    plateau.main()
    learner.main()
    credit_and_update.main()
    service.main()
    worlds.main()
    engines.main()
    growth.main()
    vllm_steps.main()
    lag.main()
    attention.main()
    against_trl.main()
    iteration.main()
    memory.main()
    os._exit(0)  # tearing vLLM down takes seconds
