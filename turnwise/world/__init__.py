"""The interface of worlds: with `turnwise.seeding`, all that a world may import of the library."""

from turnwise.errors import ContractError
from turnwise.world.contract import (
    SPLITS,
    Column,
    Environment,
    Level,
    Limits,
    Observation,
    Remaining,
    Reward,
    ScriptedAction,
    Split,
    Step,
    Task,
    World,
    require_family,
)
from turnwise.world.parameters import http_address, one_of, positive, share, true_or_false, whole_number, whole_numbers
from turnwise.world.registry import (
    ENTRY_POINTS,
    installed_worlds,
    make_world,
    missing_package,
    with_preset,
    world_class,
)
from turnwise.world.threads import EnvironmentThread, running_future
from turnwise.world.validation import ValidatedEnvironment, as_number, finite_number, quoted

__all__ = [
    "ENTRY_POINTS",
    "SPLITS",
    "Column",
    "ContractError",
    "Environment",
    "EnvironmentThread",
    "Level",
    "Limits",
    "Observation",
    "Remaining",
    "Reward",
    "ScriptedAction",
    "Split",
    "Step",
    "Task",
    "ValidatedEnvironment",
    "World",
    "as_number",
    "finite_number",
    "http_address",
    "installed_worlds",
    "make_world",
    "missing_package",
    "one_of",
    "positive",
    "quoted",
    "require_family",
    "running_future",
    "share",
    "true_or_false",
    "whole_number",
    "whole_numbers",
    "with_preset",
    "world_class",
]
