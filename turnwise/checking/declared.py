"""The check that a world declares all that it reads: anything undeclared is missing from the cache key."""

from __future__ import annotations

import json
import re

from turnwise.checking.report import Broken
from turnwise.checking.subject import Subject
from turnwise.errors import ConfigurationError
from turnwise.store.fingerprint import installed_imports
from turnwise.store.plugin_identity import providers
from turnwise.store.run_environment import COMPUTING_PACKAGES
from turnwise.store.world_identity import what_it_reads

CARRIERS = ("aiohttp", "botocore", "fsspec", "httpx", "pydantic", "s3fs")
"""Packages that only transport data; another version of them changes no episode, so they need no declaration."""


def reads_are_declared(subject: Subject) -> str:
    """Check that declared files exist, imported packages are in `distributions`, and every version can be found."""
    world = type(subject.world)
    try:
        found = what_it_reads(world, subject.parameters)
        imported = installed_imports(world.modules(subject.parameters))
    except (ConfigurationError, ValueError) as error:
        raise Broken(f"all that a world reads must be found; {error}") from error
    json.dumps(found)
    declared = found["distributions"]
    if missing := [each for each, version in declared.items() if version is None]:
        raise Broken(f"the world's distributions must be installed packages, as pip calls them; found {missing[0]!r}")
    known = {_plain(each) for each in (*declared, *COMPUTING_PACKAGES, *CARRIERS)}
    for top in sorted(imported):
        names = providers().get(top, [])
        if names and not known.intersection(map(_plain, names)):
            raise Broken(f"the world imports {top}, so `distributions` must name {names[0]!r}; it names {[*declared]}")
    return f"{len(found['files'])} files, {len(declared)} packages, {len(found['state'])} programs or servers"


def _plain(distribution: str) -> str:
    """A package's normalised name: the package index treats `a.b`, `a_b` and `A-B` as the same."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
