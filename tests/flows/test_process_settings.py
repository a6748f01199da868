"""What every process of ours begins with."""

import subprocess
import sys

PRODUCTS_OF_MANY_SHAPES = """
from pathlib import Path
from flows.runtime.process_settings import prepare_process
prepare_process()
import torch

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

weights = torch.zeros(64, 64, dtype=torch.bfloat16)
for tokens in range(1, 201):
    torch.nn.functional.linear(torch.zeros(tokens, 64, dtype=torch.bfloat16), weights)
before = resident_pages()
for tokens in range(201, 801):
    torch.nn.functional.linear(torch.zeros(tokens, 64, dtype=torch.bfloat16), weights)
print((resident_pages() - before) * 4096 // 2**20)
"""


def test_matrix_products_of_ever_new_shapes_do_not_fill_the_memory() -> None:
    command = [sys.executable, "-c", PRODUCTS_OF_MANY_SHAPES]
    grown = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert grown < 64, "MiB; with the libraries' own settings these 600 products take 380 where oneDNN computes them"
