"""WebArena's task files: `config_files/test.raw.json`, one list of tasks, or a folder of files with one task each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.browser.webarena_checks import PageCheck, Unsupported, read_checks

AND = " |AND| "
REQUIRED = ("task_id", "start_url", "intent", "eval")
PLACEHOLDER = re.compile("__[A-Z]+(?:_[A-Z]+)*__")


@dataclass(frozen=True)
class WebArenaTask:
    """One task. `name` is its number and a digest of its entry in the file, before addresses are filled in."""

    number: int
    name: str
    template: int
    sites: tuple[str, ...]
    starts: tuple[str, ...]
    intent: str
    checks: tuple[PageCheck, ...]
    login: Path | None
    """File with the browser's state after a login, if the task asks for one."""
    geolocation: Mapping[str, float] | None


def read_tasks(
    path: Path, addresses: Mapping[str, str], logins: Path | None
) -> tuple[list[WebArenaTask], dict[int, str]]:
    """Tasks of a file or a folder, by number, and the reason for each task left out.

    `addresses`: replacements for placeholders such as `__SHOPPING__`. `logins`: the folder of the files that tasks name
    as `storage_state`. Raises ValueError for a file that does not contain tasks.
    """
    tasks, refused = [], {}
    for entry in sorted(_entries(path), key=lambda entry: int(entry["task_id"])):
        try:
            tasks.append(_task(entry, addresses, logins))
        except Unsupported as unsupported:
            refused[int(entry["task_id"])] = str(unsupported)
    numbers = [*(task.number for task in tasks), *refused]
    if repeated := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise ValueError(f"task_files must name every task_id once; found {repeated[0]} more than once in {path}")
    return tasks, refused


def _entries(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise ValueError(f"task_files must be a file or a folder of WebArena's tasks; found nothing at {path}")
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    entries: list[dict[str, Any]] = []
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"task_files must hold JSON; {file} does not: {error}") from error
        entries += content if isinstance(content, list) else [content]
    for entry in entries:
        missing = [key for key in REQUIRED if not isinstance(entry, dict) or key not in entry]
        if missing:
            raise ValueError(f"every task must have {', '.join(missing)}; found one without in {path}")
    return entries


def _task(entry: dict[str, Any], addresses: Mapping[str, str], logins: Path | None) -> WebArenaTask:
    text = json.dumps(entry, sort_keys=True)
    for placeholder, address in addresses.items():
        # JSON may have to escape characters of an address.
        text = text.replace(placeholder, json.dumps(address.rstrip("/"))[1:-1])
    if unknown := sorted(set(PLACEHOLDER.findall(text))):
        raise Unsupported(f"sites gives no address for {', '.join(unknown)}")
    filled = json.loads(text)
    if not filled["start_url"]:
        raise Unsupported("it has no start_url")
    digest = hashlib.blake2b(json.dumps(entry, sort_keys=True).encode(), digest_size=4).hexdigest()
    number = int(entry["task_id"])
    return WebArenaTask(
        number=number,
        name=f"{number}-{digest}",
        template=int(entry.get("intent_template_id", number)),
        sites=tuple(entry.get("sites", ())),
        starts=tuple(filled["start_url"].split(AND)),
        intent=filled["intent"],
        checks=read_checks(filled["eval"]),
        login=_login(entry, logins),
        geolocation=entry.get("geolocation"),
    )


def _login(entry: dict[str, Any], logins: Path | None) -> Path | None:
    storage_state = entry.get("storage_state")
    if not storage_state:
        return None
    login = None if logins is None else logins / Path(storage_state).name
    if login is None or not login.is_file():
        raise Unsupported(
            f"it needs the login {Path(storage_state).name}, which is not in the folder that logins names"
        )
    return login
