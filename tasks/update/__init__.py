"""Stages that change a policy or a critic."""
