"""Stages in which a policy plays: rollouts and evaluations."""
