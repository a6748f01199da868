"""Whose a run is: the home that it is recorded from, and the process that records it.

A run that is being recorded has both as tags. The process is known by a token, whose file is locked while it lives
(`turnwise.store.process_register`). What a killed process has left RUNNING ends as KILLED when the next command of its
home begins (`close_abandoned`); runs of living processes, and those of other homes in the same database, stay as they
are. A run that is opened again is RUNNING again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from turnwise.project import home
from turnwise.store.process_register import ProcessRegister
from turnwise.store.sqlite_files import sqlite_file
from turnwise.tracking.client import TrackingClient
from turnwise.tracking.database import alone
from turnwise.tracking.locations import DATABASE, HOME

PROCESS = "turnwise.process"
"""The tag with the token of the process that has opened the run last."""
KILLED = "KILLED"


def ownership(tracking_uri: str) -> Mapping[str, str]:
    """The tags of a run that this process records in a store now."""
    return {HOME: str(home()), PROCESS: _processes(tracking_uri).enter()}


def close_abandoned(tracking_uri: str) -> int:
    """End as KILLED what processes of this home that have ended left RUNNING in a store; returns how many runs.

    Each ends when its process last wrote. Nothing is changed in a database that can only be read. Without such a
    process the store is not even opened.
    """
    path = sqlite_file(tracking_uri)
    if path is not None and not os.access(path, os.W_OK):
        return 0
    client, count = TrackingClient(tracking_uri), 0
    with _processes(tracking_uri).ended() as ended:
        for token, worked in ended.items():
            for run in client.runs((PROCESS, token)):
                if _is_abandoned(run, token, tracking_uri):
                    count += _close(client, run, token, int(worked * 1000))
    return count


def _close(client: TrackingClient, run: Any, token: str, milliseconds: int) -> bool:
    run_id, mlflow_client = run.info.run_id, client.mlflow  # opened before the lock, which it may take itself
    with alone(client.tracking_uri):
        if not _is_abandoned(client.run(run_id), token, client.tracking_uri):  # resumed meanwhile
            return False
        mlflow_client.set_terminated(run_id, KILLED, max(milliseconds, run.info.start_time))
        return True


def _is_abandoned(run: Any, token: str, tracking_uri: str) -> bool:
    """Whether a run is RUNNING by the process of this token alone, which has ended.

    A copy of a home has a copy of the process's file, which nobody locks; in a database that both share, the run is
    that of the former.
    """
    tags = run.data.tags
    ours = _is_homes_own(tracking_uri) or tags.get(HOME) == str(home())
    return ours and run.info.status == "RUNNING" and tags.get(PROCESS) == token


def _is_homes_own(tracking_uri: str) -> bool:
    path = sqlite_file(tracking_uri)
    return path is not None and path.absolute() == home() / DATABASE


def _processes(tracking_uri: str) -> ProcessRegister:
    """The processes of this home that record in a store, whose address is told by a digest without its password."""
    if _is_homes_own(tracking_uri):
        return ProcessRegister("mlflow")
    parts = urlsplit(tracking_uri)
    place = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, parts.fragment))
    return ProcessRegister(f"mlflow-{hashlib.blake2b(place.encode(), digest_size=8).hexdigest()}")
