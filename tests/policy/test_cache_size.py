"""The sizes of the engines' caches, by numbers worked by hand."""

import pytest

from turnwise.policy.engines.cache_size import (
    attends_singly,
    bytes_per_token,
    embedded_slots,
    rounded_up,
    vllm_cache_bytes,
)


def test_a_token_has_a_key_and_a_value_in_every_layer() -> None:
    # Qwen2.5-7B: 28 layers of 4 heads of dimension 128, keys and values of 2 or 4 bytes.
    assert bytes_per_token(28, 4, 128, bytes_per_number=2) == 57_344
    assert bytes_per_token(28, 4, 128) == 114_688


@pytest.mark.parametrize(("episodes", "slots"), [(7, 7), (128, 128), (256, 128)])
def test_slots_are_those_of_the_episodes_up_to_a_limit(episodes: int, slots: int) -> None:
    assert embedded_slots("cpu", 1024, 100, episodes) == slots


def test_slots_are_as_many_as_fit_and_at_least_one() -> None:
    # 1 GiB holds ten contexts of 100 tokens of 1 MiB, and not one of 2000.
    assert embedded_slots("cpu", 2**20, 100, 256) == 10
    assert embedded_slots("cpu", 2**20, 2000, 256) == 1


def test_single_tokens_attend_by_loops_of_their_own_where_a_cpus_cache_has_32_mib() -> None:
    # 128 slots of 256 tokens of 1 KiB are 32 MiB, whatever more episodes there are.
    assert attends_singly("cpu", 1024, 256, 200)
    assert not attends_singly("cpu", 1024, 255, 200)
    assert not attends_singly("cpu", 1024, 256, 127)
    assert not attends_singly("cuda", 1024, 256, 200)


def test_vllms_cache_has_room_for_all_episodes_within_its_limits() -> None:
    assert vllm_cache_bytes("cpu", 1024, 100, 8) == 64 * 2**20  # at least
    assert vllm_cache_bytes("cpu", 2**20, 100, 4) == 400 * 2**20
    assert vllm_cache_bytes("cpu", 2**20, 100, 64) == 512 * 2**20  # at most
    assert vllm_cache_bytes("cpu", 2**20, 300, 64) == 600 * 2**20  # two episodes, whatever the limit


@pytest.mark.parametrize(("number", "rounded"), [(0, 0), (1, 32), (32, 32), (33, 64)])
def test_slots_and_tokens_are_allocated_in_multiples(number: int, rounded: int) -> None:
    assert rounded_up(number) == rounded
