"""The store of the current home, local or shared.

Which store it is, is said by the environment, which the processes that this one starts inherit. No result depends on
it, so it is no part of any cache key.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from turnwise.project import home
from turnwise.store.artifacts import Store
from turnwise.store.place import S3, BucketPlace, FolderPlace, SharedPlace
from turnwise.store.shared import SharedStore

URL_VARIABLE, CACHE_VARIABLE = "TURNWISE_STORE", "TURNWISE_CACHE_GIGABYTES"
"""The shared store's address, and the bound of its local cache. Where the user sets the first, both go before the
section `storage`, e.g. on a machine that reaches the same folder by another path."""

_set_here: dict[str, str] = {}
"""The variables that `use_storage` has set in this process."""


def use_storage(url: str, cache_gigabytes: float | None) -> None:
    """Have this process, and those that it starts from here on, use the store that the section `storage` names.

    Args:
        url: `storage.url`; empty for the local store alone.
        cache_gigabytes: `storage.cache_gigabytes`.
    """
    if os.environ.get(URL_VARIABLE, "") != _set_here.get(URL_VARIABLE, ""):
        return
    variables = {URL_VARIABLE: url} if url else {}
    if url and cache_gigabytes is not None:
        variables[CACHE_VARIABLE] = repr(cache_gigabytes)
    for name in _set_here.keys() - variables.keys():
        os.environ.pop(name, None)
    os.environ.update(variables)
    _set_here.clear()
    _set_here.update(variables)


def default_store() -> Store:
    """The store of the current home: one object per folder and process, so that nothing is verified twice.

    Raises ConfigurationError where a shared store is named that cannot be reached with what is installed.
    """
    return _store_at(home() / "store", os.environ.get(URL_VARIABLE, ""), os.environ.get(CACHE_VARIABLE, ""))


def nothing_is_stored() -> bool:
    """Whether the store is empty: then no stage is recorded, and its key, for which all code is read, is of no use."""
    store = default_store()
    return store.place is None and not store.references()


def require_place() -> None:
    """Refuse a shared store that does not exist or cannot be written to, before anything is computed.

    Raises ConfigurationError, or StoreUnreachable where its server does not answer.
    """
    if (place := default_store().place) is not None:
        place.require_writable()


def place_at(url: str) -> SharedPlace:
    """The place of this address. Raises ConfigurationError where S3 is named and s3fs is not installed."""
    return BucketPlace(url) if url.startswith(S3) else FolderPlace(url)


@cache
def _store_at(root: Path, url: str, cache_gigabytes: str) -> Store:
    if not url:
        return Store(root)
    return SharedStore(root, place_at(url), int(float(cache_gigabytes) * 1e9) if cache_gigabytes else None)
