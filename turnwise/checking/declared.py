"""Whether a world says all that it reads: what it leaves out is no part of the cache key."""

from __future__ import annotations

import importlib.metadata
import json
import re

from turnwise.checking.report import Broken
from turnwise.checking.subject import Subject
from turnwise.errors import ConfigurationError
from turnwise.store.fingerprint import installed_imports
from turnwise.store.run_environment import COMPUTING_PACKAGES
from turnwise.store.world_identity import what_it_reads

CARRIERS = ("httpx", "pydantic")
"""Packages that carry what others compute: another version of them changes no episode."""


def reads_are_declared(subject: Subject) -> str:
    """Files are there, packages that the code imports are among its `distributions`, and versions can be asked for."""
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
    providers = importlib.metadata.packages_distributions()
    for top in sorted(imported):
        names = providers.get(top, [])
        if names and not known.intersection(map(_plain, names)):
            raise Broken(f"the world imports {top}, so `distributions` must name {names[0]!r}; it names {[*declared]}")
    return f"{len(found['files'])} files, {len(declared)} packages, {len(found['state'])} programs or servers"


def _plain(distribution: str) -> str:
    """A package's name in the one spelling that the package index takes for all."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
