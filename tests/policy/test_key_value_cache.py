"""The embedded engine's cache: what is written is read, growth loses nothing, and another model's cache is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from turnwise.policy.engines.fused import KeyValueCache


def a_cache(**changes: Any) -> KeyValueCache:
    shape = {"layers": 2, "heads": 3, "dimension": 4, "dtype": torch.float32, "device": torch.device("cpu")}
    return KeyValueCache(**{**shape, **changes})


@pytest.mark.parametrize("changed", [{"layers": 3}, {"heads": 2}, {"dimension": 8}, {"dtype": torch.bfloat16}])
def test_a_cache_serves_for_another_of_equal_layers_whatever_room_it_has(changed: dict[str, Any]) -> None:
    used = a_cache()
    used.reserve(5, 40)
    assert used.fits(a_cache()) and a_cache().fits(used)
    assert not used.fits(a_cache(**changed))


def test_a_token_has_keys_and_values_in_all_layers() -> None:
    assert a_cache().bytes_per_token == 2 * 2 * 3 * 4 * 4
    assert a_cache(dtype=torch.bfloat16).bytes_per_token == 2 * 2 * 3 * 4 * 2


def test_what_is_written_is_read_also_after_growth_and_from_a_copy() -> None:
    cache = a_cache()
    cache.reserve(2, 3)
    slots, positions = np.array([1, 0, 1]), np.array([0, 2, 1])
    keys = torch.arange(36.0).view(3, 3, 4)
    for layer in range(2):
        cache.write(layer, cache.places(slots, positions), keys + 100 * layer, -keys)
    cache.reserve(4, 100)
    cache.copy(1, np.array([2, 3]), 2)
    for layer in range(2):
        for slot in (1, 2, 3):
            found_keys, found_values = cache.read(layer, slice(slot, slot + 1), 2)
            assert torch.equal(found_keys[0], torch.stack([keys[0], keys[2]], dim=1) + 100 * layer)
            assert torch.equal(found_values[0], -torch.stack([keys[0], keys[2]], dim=1))
        in_order, _ = cache.read(layer, torch.tensor([2, 0]), 3)
        assert torch.equal(in_order[1, :, 2], keys[1] + 100 * layer)
        assert not in_order[1, :, :2].any(), "new room is zeros"


def test_it_grows_at_least_by_half_and_never_shrinks() -> None:
    cache = a_cache()
    cache.reserve(64, 64)
    tensor = cache.keys[0]
    for slots, length in ((64, 64), (3, 64), (64, 3)):
        cache.reserve(slots, length)
        assert cache.keys[0] is tensor
    cache.reserve(65, 64)
    assert (cache.slots, cache.length) == (96, 64) and cache.keys[0].shape == (96, 3, 64, 4)
    cache.reserve(96, 200)
    assert (cache.slots, cache.length) == (96, 224), "in steps of 32"
