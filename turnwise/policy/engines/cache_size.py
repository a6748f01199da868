"""How much memory the engines' keys and values take: the engines allocate by it, and a memory plan reads it.

Nothing here imports torch, so that a plan is made at once.
"""

from __future__ import annotations

EMBEDDED_MOST_BYTES = {"cpu": 2**30, "cuda": 16 * 2**30}
"""Limits on the size of the embedded engine's cache, which limit the number of slots. There is at least one slot."""
MOST_SLOTS = {"cpu": 128, "cuda": 1024}
"""Most slots of the embedded engine. On a CPU tokens cost more again with more, whose keys and values leave the
processor's caches."""
SINGLY_LEAST_BYTES = 32 * 2**20
"""The size of the embedded engine's cache from which on a CPU computes a single new token's attention by the loops of
`single_queries`. Of smaller ones they save less than Numba, which compiles them, takes to start: half a second."""
VLLM_LEAST_BYTES = 64 * 2**20
VLLM_MOST_BYTES = {"cpu": 512 * 2**20, "cuda": 16 * 2**30}
"""Limits on the size of vLLM's cache. It has room for all episodes at full length as far as the limits allow; where it
is full, vLLM makes episodes wait."""

_ROUNDING = 32


def bytes_per_token(layers: int, key_value_heads: int, head_dimension: int, bytes_per_number: int = 4) -> int:
    """The size of one token's keys and values in all layers."""
    return 2 * layers * key_value_heads * head_dimension * bytes_per_number


def embedded_slots(device: str, token_bytes: int, context_length: int, maximum_episodes: int) -> int:
    """The number of the embedded engine's slots, one per sequence, of `context_length` tokens.

    `device` is cpu or cuda, and `token_bytes` the bytes per token.
    """
    most = EMBEDDED_MOST_BYTES[device] // (token_bytes * context_length)
    return max(1, min(maximum_episodes, most, MOST_SLOTS[device]))


def attends_singly(device: str, token_bytes: int, context_length: int, maximum_episodes: int) -> bool:
    """Whether the embedded engine uses `single_queries`; the arguments are those of `embedded_slots`."""
    slots = embedded_slots(device, token_bytes, context_length, maximum_episodes)
    return device == "cpu" and slots * token_bytes * context_length >= SINGLY_LEAST_BYTES


def rounded_up(number: int) -> int:
    """The number of slots or tokens that the embedded engine's cache allocates for these: multiples of 32."""
    return -(-number // _ROUNDING) * _ROUNDING


def vllm_cache_bytes(device: str, token_bytes: int, context_length: int, maximum_episodes: int) -> int:
    """The size of vLLM's cache; the arguments are those of `embedded_slots`."""
    # vLLM requires room for one episode of full length; twice that, since it rounds to blocks of many tokens.
    one_episode = 2 * token_bytes * context_length
    wanted = token_bytes * context_length * maximum_episodes
    return max(one_episode, VLLM_LEAST_BYTES, min(wanted, VLLM_MOST_BYTES[device]))
