"""The small artifacts of the tests of stages, for the stages that make base policies."""

from tests.tasks.conftest import small, small_home

__all__ = ["small", "small_home"]
