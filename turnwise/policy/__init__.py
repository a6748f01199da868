"""The policy: the engines that sample from it, the learner that trains it, its critic, and its tokenizer."""

import os

# OpenMP and Hugging Face's libraries read these when the modules of this package load them; a user's setting wins.
# OMP_WAIT_POLICY: threads that spin while they wait stall one another as soon as anything else runs on the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Read at CUDA's first matrix product: without it torch refuses the learner's deterministic kernels.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
