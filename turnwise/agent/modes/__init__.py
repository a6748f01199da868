"""Modes: which replies are requested besides acting ones. `plain`: none; `plan`: plans; `reflect`: lessons.

See `turnwise.agent.modes.contract`.
"""

from __future__ import annotations

from turnwise.agent.modes.contract import Mode, PlainMode
from turnwise.agent.modes.plan import PlanMode
from turnwise.agent.modes.reflect import ReflectMode
from turnwise.config.agent import ModeSection

__all__ = ["MODES", "Mode", "PlainMode", "PlanMode", "ReflectMode", "make_mode"]

MODES: dict[str, type[Mode]] = {"plain": PlainMode, "plan": PlanMode, "reflect": ReflectMode}


def make_mode(section: ModeSection) -> Mode:
    """The mode that a configuration section names, with its options."""
    return MODES[section.name](**section.model_dump(exclude={"name"}, exclude_none=True))
