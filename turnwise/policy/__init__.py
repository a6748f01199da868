"""The policy: what samples from it (the engine), what trains it (the learner), and its tokens."""

import os

# Read when OpenMP and Hugging Face's libraries are loaded, which the modules of this package do; a user's setting wins.
# Threads that spin while they wait stall one another as soon as anything else runs on the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Read when CUDA first multiplies matrices: without it the learner's deterministic kernels are refused.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
