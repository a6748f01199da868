"""What other systems call the settings of this one: the table behind `docs/coming-from.md` and behind answers to them.

A row of `peer_names.json` is one setting of one system, as its configuration writes it, with the settings here that are
the same algorithm, and what still differs. A peer's name that is given to one of our keys is answered from here, since
the name that is spelled most alike is often another algorithm. `lab.coming_from` writes the page.

Read in verl 0.9.1, TRL 1.16.0, OpenRLHF 3c3be623, SkyRL a9564572e, AReaL cbff54d64, prime-rl 559b44772, ROLL 8eb27cc2
and verl-agent 20bd331.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ANY = "x"
"""Stands for a value that the user chooses."""


@dataclass(frozen=True)
class PeerName:
    """One setting of another system."""

    system: str
    key: str
    """The other system's key."""
    value: str
    """Its value there; `ANY` for a number."""
    ours: Mapping[str, Any] = field(default_factory=dict)
    """By key of `params.yaml`, what to set here. A text that begins with `ANY` is computed from the other's value."""
    differs: str = ""
    """What is not the same, or what to know."""

    @property
    def is_choice(self) -> bool:
        """Whether the value is a name, by which a user may look for it here."""
        return not self.value.startswith(ANY)

    def settings(self) -> str:
        """What to set here, as text: `optimization.loss: clipped, optimization.aggregation: token-mean`."""
        return ", ".join(self.each_setting())

    def each_setting(self) -> list[str]:
        """What to set here, one text for each key."""
        return [f"{key}: {_as_yaml(value)}" for key, value in self.ours.items()]


PAPERS = "papers"
SYSTEMS = ("verl", "TRL", "OpenRLHF", "SkyRL", "AReaL", "prime-rl", "ROLL", "verl-agent", PAPERS)
"""The systems in the order of the page."""


@cache
def peer_names() -> tuple[PeerName, ...]:
    """The rows of `peer_names.json`, by system and then by key."""
    rows = json.loads(Path(__file__).with_name("peer_names.json").read_text(encoding="utf-8"))
    return tuple(PeerName(*row) for row in rows)


def peer_answer(key: str, name: object) -> str:
    """What a name given under our `key` is called here, as the end of a message: `: in TRL (loss_type) that is ...`.

    `key` may be the end of a dotted key, such as `aggregation`. Rows that set this key come before those that set
    others. Empty for a name that no other system has.
    """
    systems_by_settings: dict[str, list[str]] = {}
    rows = list(_rows_named(str(name)))
    key_rows = [row for row in rows if any(ours == key or ours.endswith(f".{key}") for ours in row.ours)]
    for row in key_rows or rows:
        system = "papers" if row.system == PAPERS else f"{row.system} ({row.key})"
        systems_by_settings.setdefault(row.settings(), []).append(system)
    if not systems_by_settings:
        return ""
    answers = (f"in {', '.join(systems)} that is {settings}" for settings, systems in systems_by_settings.items())
    return f": {'; '.join(answers)}. See docs/coming-from.md"


def _rows_named(name: str) -> Iterator[PeerName]:
    wanted = _plain(name)
    return (row for row in peer_names() if row.is_choice and _plain(row.value) == wanted)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _as_yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = f"{value:.9f}".rstrip("0")
        return f"{text}0" if text.endswith(".") else text
    return str(value)
