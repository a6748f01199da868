"""Identity of plug-ins: what a cache key has of them besides their code.

The code of a plug-in's modules, and of what they import of the user's, is fingerprinted (`turnwise.store.fingerprint`).
Of installed packages that this code imports, or that the plug-in declares, the version counts; of files, the content.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.plugins import versions
from turnwise.store.fingerprint import installed_imports
from turnwise.store.outside import cached_sha256


def plugin_ingredients(
    modules: Sequence[str], distributions: Iterable[str] = (), files: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """The versions of packages and the digests of files, as a part of a cache key; empty where there are no modules.

    Args:
        modules: the modules of the plug-ins that a stage calls.
        distributions: packages that they declare, as pip calls them.
        files: files that they read, by a name that does not depend on their place.
    """
    if not modules:
        return {}
    imported = {name for top in installed_imports(modules) for name in providers().get(top, [])}
    return {
        "packages": versions({*imported, *distributions}),
        "files": {name: cached_sha256(path) for name, path in (files or {}).items()},
    }


@cache
def providers() -> Mapping[str, list[str]]:
    """The installed packages that provide each top-level module, as they were at the first call: it takes 0.2 s."""
    return importlib.metadata.packages_distributions()
