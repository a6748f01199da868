"""What torch frees stays with the process, so that the next tensors cost no page faults."""

import platform
import resource

import pytest
import torch

from turnwise.policy.freed_memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the option")
def test_tensors_of_the_same_size_cost_page_faults_once() -> None:
    keep_freed_memory()
    faults = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(8):
            torch.ones(2**21)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    of_one_tensor = 2**23 // resource.getpagesize()
    assert sum(faults[1:]) < of_one_tensor
