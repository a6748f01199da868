"""What torch frees stays with the process, so that the next tensors cost no page faults, until it is returned."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from turnwise.policy import freed_memory
from turnwise.policy.freed_memory import LARGE_POLICY, keep_freed_memory, return_freed_memory

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the option")


OF_ROUNDS = """
import resource, sys, torch
from turnwise.policy.freed_memory import keep_freed_memory
keep_freed_memory(int(sys.argv[1]), few_sizes=False)
for _ in range(16):  # of two tensors of 64 MiB, which are filled and freed together
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.ones(2**24) for _ in range(2)]
    del tensors
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@only_glibc
def test_tensors_of_the_same_size_cost_page_faults_in_the_first_rounds_alone() -> None:
    def page_faults(parameters: int) -> list[int]:
        """Page faults of each round, in a process whose memory nothing else has divided."""
        command = [sys.executable, "-c", OF_ROUNDS, str(parameters)]
        return [int(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]

    of_two_tensors = 2 * 2**26 // resource.getpagesize()
    assert min(page_faults(LARGE_POLICY + 1)) >= of_two_tensors, "returned at once"
    # In the first rounds they may come to lie elsewhere each time.
    assert page_faults(0)[-1] < of_two_tensors / 8


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@only_glibc
def test_what_lies_freed_between_tensors_in_use_is_returned_where_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_freed_memory(0, few_sizes=False)
    monkeypatch.setattr(freed_memory, "KEPT_BYTES", 2**26)
    tensors = [torch.ones(2**20) for _ in range(64)]  # of 4 MiB each
    kept = tensors[::2]
    del tensors
    before = resident_bytes()
    return_freed_memory()
    assert before - resident_bytes() > 0.9 * 32 * 2**22
    assert all(bool(tensor.eq(1).all()) for tensor in kept)


OF_A_LARGE_POLICY = """
import ctypes, sys
from pathlib import Path
from turnwise.policy.freed_memory import LARGE_POLICY, keep_freed_memory
keep_freed_memory(LARGE_POLICY + int(sys.argv[1]), few_sizes=sys.argv[2] == "few")
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
places = [ctypes.c_void_p(library.malloc(2**22)) for _ in range(64)]
for place in places:
    ctypes.memset(place, 1, 2**22)
before = int(Path("/proc/self/statm").read_text().split()[1])
for place in places[::2]:
    library.free(place)
print(before - int(Path("/proc/self/statm").read_text().split()[1]))
"""


@only_glibc
@pytest.mark.parametrize(("beyond", "sizes", "returned"), [(0, "many", False), (1, "many", True), (1, "few", False)])
def test_of_a_large_policy_what_is_freed_is_returned_at_once_where_its_sizes_vary(
    beyond: int, sizes: str, returned: bool
) -> None:
    command = [sys.executable, "-c", OF_A_LARGE_POLICY, str(beyond), sizes]
    pages = int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert (pages * resource.getpagesize() > 0.9 * 32 * 2**22) == returned
